import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Sends count messages with the Java producer.
 *
 * namesrv topic count; size=100 tags=A,B (used in turn) keys=true properties=name:value,...
 * batch=1 (messages a call) delay=0 (level) mode=sync|async|oneway threads=1 first=0 (number of the
 * first body) queue=-1 (queue id on every broker) group compressOver=4096 flag=0 namespace= vip=false
 * unit=
 */
public final class Produce {
    private static final int RETRIES = 4;

    private final Tool tool;
    private final DefaultMQProducer producer;
    private final String topic;
    private final int size;
    private final String[] tags;
    private final Tool.Digest digest = new Tool.Digest();
    private final Map<String, Integer> queues = new TreeMap<>();
    private final Map<String, Integer> statuses = new TreeMap<>();
    private final List<String> messageIds = new ArrayList<>();
    private List<MessageQueue> chosen = Collections.emptyList();

    private Produce(Tool tool) {
        this.tool = tool;
        topic = tool.text("topic");
        size = tool.number("size", 100);
        tags = tool.text("tags", "").isEmpty() ? new String[0] : tool.text("tags").split(",");
        producer = new DefaultMQProducer(tool.text("group", "java_produce"));
        producer.setNamesrvAddr(tool.text("namesrv"));
        producer.setSendMsgTimeout(10000);
        producer.setRetryTimesWhenSendFailed(RETRIES);
        producer.setCompressMsgBodyOverHowmuch(tool.number("compressOver", 4096));
        producer.setInstanceName("produce@" + System.nanoTime());
        tool.configure(producer);
    }

    public static void main(String[] args) throws Exception {
        Tool.finish(new Produce(new Tool(args)).run());
    }

    private Message message(long index) {
        Message message = new Message(topic, Tool.body(index, size));
        message.setFlag(tool.number("flag", 0));
        if (tags.length > 0) {
            message.setTags(tags[(int) (index % tags.length)]);
        }
        if (tool.flag("keys", true)) {
            message.setKeys("key-" + index);
        }
        String properties = tool.text("properties", "");
        if (!properties.isEmpty()) {
            for (String pair : properties.split(",")) {
                int split = pair.indexOf(':');
                message.putUserProperty(pair.substring(0, split), pair.substring(split + 1));
            }
        }
        if (tool.number("delay", 0) > 0) {
            message.setDelayTimeLevel(tool.number("delay", 0));
        }
        return message;
    }

    private Map<String, Object> run() throws Exception {
        long count = tool.number("count", 1);
        int first = tool.number("first", 0);
        int threads = tool.number("threads", 1);
        producer.start();
        int only = tool.number("queue", -1);
        if (only >= 0) {
            chosen = new ArrayList<>();
            for (MessageQueue queue : producer.fetchPublishMessageQueues(topic)) {
                if (queue.getQueueId() == only) {
                    chosen.add(queue);
                }
            }
            if (chosen.isEmpty()) {
                throw new IllegalArgumentException("no queue " + only + " in topic " + topic);
            }
        }
        long started = System.nanoTime();
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        List<Future<?>> parts = new ArrayList<>();
        for (int part = 0; part < threads; part++) {
            long from = first + count * part / threads;
            long to = first + count * (part + 1) / threads;
            parts.add(pool.submit(() -> {
                send(from, to);
                return null;
            }));
        }
        for (Future<?> part : parts) {
            part.get();
        }
        double seconds = (System.nanoTime() - started) / 1e9;
        producer.shutdown();
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("count", count);
        result.put("bytes", count * size);
        result.put("seconds", seconds);
        result.put("digest", digest.text());
        result.put("statuses", statuses);
        result.put("queues", queues);
        result.put("messageIds", messageIds);
        return result;
    }

    private void send(long from, long to) throws Exception {
        int batch = tool.number("batch", 1);
        if (batch > 1) {
            for (long index = from; index < to; index += batch) {
                List<Message> messages = new ArrayList<>();
                for (long i = index; i < Math.min(index + batch, to); i++) {
                    messages.add(message(i));
                }
                SendResult sent = chosen.isEmpty()
                    ? producer.send(messages)
                    : producer.send(messages, chosen.get((int) (index / batch % chosen.size())));
                record(sent, messages);
            }
            return;
        }
        switch (tool.text("mode", "sync")) {
            case "sync":
                for (long index = from; index < to; index++) {
                    Message message = message(index);
                    SendResult sent = chosen.isEmpty()
                        ? producer.send(message)
                        : producer.send(message, chosen.get((int) (index % chosen.size())));
                    record(sent, Collections.singletonList(message));
                }
                break;
            case "oneway":
                for (long index = from; index < to; index++) {
                    Message message = message(index);
                    digest.add(message.getBody());
                    producer.sendOneway(message);
                }
                // The calls return when the frame is queued for the socket: let it drain.
                TimeUnit.SECONDS.sleep(1);
                break;
            case "async":
                sendAsync(from, to);
                break;
            default:
                throw new IllegalArgumentException("mode " + tool.text("mode"));
        }
    }

    private void sendAsync(long from, long to) throws Exception {
        Semaphore window = new Semaphore(256);
        CountDownLatch done = new CountDownLatch((int) (to - from));
        AtomicReference<Throwable> failure = new AtomicReference<>();
        for (long index = from; index < to; index++) {
            window.acquire();
            Message message = message(index);
            byte[] body = message.getBody();
            producer.send(message, new SendCallback() {
                @Override
                public void onSuccess(SendResult sent) {
                    message.setBody(body);
                    record(sent, Collections.singletonList(message));
                    window.release();
                    done.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    failure.set(error);
                    window.release();
                    done.countDown();
                }
            });
        }
        done.await(60, TimeUnit.SECONDS);
        if (failure.get() != null) {
            throw new IllegalStateException(failure.get());
        }
    }

    private synchronized void record(SendResult sent, List<Message> messages) {
        for (Message message : messages) {
            digest.add(message.getBody());
        }
        statuses.merge(sent.getSendStatus().name(), messages.size(), Integer::sum);
        queues.merge(Tool.queue(sent.getMessageQueue()), messages.size(), Integer::sum);
        if (messageIds.size() < 10) {
            messageIds.add(sent.getMsgId());
        }
    }
}
