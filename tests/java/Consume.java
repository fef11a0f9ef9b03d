import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintWriter;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;

/**
 * Push consumer until count distinct (queue, offset) were seen or timeout seconds have passed.
 *
 * namesrv topic group count; tags=* from=first|last|yyyyMMddHHmmss pullBatch=32 consumeBatch=1
 * threads=20 timeout=60 linger=0.5 (seconds to wait for more than count) fail=0 (so many messages
 * are refused at their first delivery) broadcast=false output= (a file: one JSON line a message)
 * namespace= vip=false unit= persist=5000 (ms between commits) orderly=false pause=0 (seconds that a
 * call takes) calls= (a file: lines as tests/member.py writes them, one when a call begins and one
 * when it succeeds; with it the program leaves the group properly when it is terminated)
 */
public final class Consume {
    private final Tool tool;
    private final Tool.Digest digest = new Tool.Digest();
    private final Set<String> seen = ConcurrentHashMap.newKeySet();
    private final Map<String, Integer> queues = new TreeMap<>();
    private final AtomicLong noted = new AtomicLong(); // of those seen, what is in the results
    private final AtomicLong duplicates = new AtomicLong();
    private final AtomicLong bytes = new AtomicLong();
    private final AtomicLong calls = new AtomicLong();
    private final AtomicLong refusals = new AtomicLong();
    private final AtomicLong callKeys = new AtomicLong();
    private final PrintWriter output;
    private final OutputStream callLog;
    private long firstAt;
    private long lastAt;

    private Consume(Tool tool) throws Exception {
        this.tool = tool;
        String path = tool.text("output", "");
        output = path.isEmpty() ? null : new PrintWriter(path, "UTF-8");
        String calledPath = tool.text("calls", "");
        callLog = calledPath.isEmpty() ? null : new FileOutputStream(calledPath, true);
    }

    public static void main(String[] args) throws Exception {
        Tool.finish(new Consume(new Tool(args)).run());
    }

    private Map<String, Object> run() throws Exception {
        long count = tool.number("count", 1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(tool.text("group"));
        consumer.setNamesrvAddr(tool.text("namesrv"));
        consumer.setInstanceName("consume@" + System.nanoTime());
        // The retry topic comes to be with the first heartbeat, after the first look for it.
        consumer.setPollNameServerInterval(1000);
        tool.configure(consumer);
        String from = tool.text("from", "first");
        switch (from) {
            case "first":
                consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
                break;
            case "last":
                consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
                break;
            default:
                consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_TIMESTAMP);
                consumer.setConsumeTimestamp(from);
        }
        if (tool.flag("broadcast", false)) {
            consumer.setMessageModel(MessageModel.BROADCASTING);
        }
        consumer.setPullBatchSize(tool.number("pullBatch", 32));
        consumer.setConsumeMessageBatchMaxSize(tool.number("consumeBatch", 1));
        int threads = tool.number("threads", 20);
        consumer.setConsumeThreadMin(threads);
        consumer.setConsumeThreadMax(Math.max(threads, 64));
        consumer.setPersistConsumerOffsetInterval(
            tool.number("persist", consumer.getPersistConsumerOffsetInterval()));
        consumer.subscribe(tool.text("topic"), tool.text("tags", "*"));
        if (tool.flag("orderly", false)) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                call(messages, context.getMessageQueue()) ? ConsumeOrderlyStatus.SUCCESS
                    : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
                call(messages, context.getMessageQueue())
                    ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
                    : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        }
        if (callLog != null) {
            // The client's default is to give its locks back while calls still run.
            consumer.setAwaitTerminationMillisWhenShutdown(10000);
            Runtime.getRuntime().addShutdownHook(new Thread(consumer::shutdown));
        }
        long deadline = System.nanoTime() + (long) (tool.real("timeout", 60) * 1e9);
        consumer.start();
        while (noted.get() < count && System.nanoTime() < deadline) {
            TimeUnit.MILLISECONDS.sleep(5);
        }
        TimeUnit.MILLISECONDS.sleep((long) (tool.real("linger", 0.5) * 1000));
        consumer.shutdown();
        if (output != null) {
            output.close();
        }
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("messages", seen.size());
        result.put("duplicates", duplicates.get());
        result.put("refused", refusals.get());
        result.put("calls", calls.get());
        result.put("bytes", bytes.get());
        result.put("digest", digest.text());
        result.put("seconds", (lastAt - firstAt) / 1e9);
        result.put("queues", queues);
        return result;
    }

    /** One listener call, noted at both ends: a killed program has written what it began. */
    private boolean call(List<MessageExt> messages, MessageQueue from) {
        if (callLog == null) {
            return listen(messages, from);
        }
        long key = callKeys.incrementAndGet();
        StringBuilder begin = new StringBuilder("B " + key + " " + from.getQueueId());
        begin.append(' ').append(System.nanoTime());
        for (MessageExt message : messages) {
            begin.append(' ').append(message.getQueueOffset());
        }
        note(begin.toString());
        try {
            Thread.sleep((long) (tool.real("pause", 0) * 1000));
        } catch (InterruptedException ending) {
            return false;
        }
        boolean good = listen(messages, from);
        if (good) {
            note("E " + key + " " + System.nanoTime());
        }
        return good;
    }

    private void note(String line) {
        try {
            synchronized (callLog) {
                callLog.write((line + "\n").getBytes(StandardCharsets.US_ASCII));
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private boolean listen(
        List<MessageExt> messages, MessageQueue from) {
        calls.incrementAndGet();
        boolean refuse = false;
        for (MessageExt message : messages) {
            refuse |= message.getReconsumeTimes() == 0 && refuses();
        }
        if (refuse) {
            return false;
        }
        for (MessageExt message : messages) {
            String queue = Tool.queue(from);
            if (!seen.add(queue + "@" + message.getQueueOffset())) {
                duplicates.incrementAndGet();
                continue;
            }
            digest.add(message.getBody());
            bytes.addAndGet(message.getBody() == null ? 0 : message.getBody().length);
            synchronized (this) {
                lastAt = System.nanoTime();
                firstAt = firstAt == 0 ? lastAt : firstAt;
                queues.merge(queue, 1, Integer::sum);
                if (output != null) {
                    output.println(Tool.json(Tool.describe(message, from)));
                }
            }
            noted.incrementAndGet();
        }
        return true;
    }

    private synchronized boolean refuses() {
        if (refusals.get() >= tool.number("fail", 0)) {
            return false;
        }
        refusals.incrementAndGet();
        return true;
    }
}
