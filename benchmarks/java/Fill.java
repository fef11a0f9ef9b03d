import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.ResponseCode;

/**
 * Loads a topic fast: batches, spread evenly over its queues.
 *
 * namesrv topic count; size=1024 tags=TagA,TagB,TagC,TagD threads=2 batchBytes=1048576. Every
 * message has TAGS, KEYS and UNIQ_KEY.
 */
public final class Fill {
    private static final int PROPERTIES_BYTES = 150;

    private final Tool tool;
    private final String topic;
    private final int size;
    private final String[] tags;
    private final DefaultMQProducer producer;

    private Fill(Tool tool) {
        this.tool = tool;
        topic = tool.text("topic");
        size = tool.number("size", 1024);
        tags = tool.text("tags", "TagA,TagB,TagC,TagD").split(",");
        producer = new DefaultMQProducer("java_fill");
        producer.setNamesrvAddr(tool.text("namesrv"));
        producer.setSendMsgTimeout(30000);
        producer.setInstanceName("fill@" + System.nanoTime());
    }

    public static void main(String[] args) throws Exception {
        Tool.finish(new Fill(new Tool(args)).run());
    }

    private Map<String, Object> run() throws Exception {
        long count = Long.parseLong(tool.text("count"));
        producer.start();
        List<MessageQueue> queues = producer.fetchPublishMessageQueues(topic);
        long started = System.nanoTime();
        ExecutorService pool = Executors.newFixedThreadPool(tool.number("threads", 2));
        List<Future<?>> parts = new ArrayList<>();
        for (int i = 0; i < queues.size(); i++) {
            MessageQueue queue = queues.get(i);
            long from = count * i / queues.size();
            long to = count * (i + 1) / queues.size();
            parts.add(pool.submit(() -> {
                load(queue, from, to);
                return null;
            }));
        }
        for (Future<?> part : parts) {
            part.get();
        }
        double seconds = (System.nanoTime() - started) / 1e9;
        Map<String, Long> ends = settled(queues, count);
        producer.shutdown();
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("count", count);
        result.put("bytes", count * size);
        result.put("seconds", seconds);
        result.put("messages_per_second", count / seconds);
        result.put("queues", ends);
        return result;
    }

    /** The broker indexes what it has stored a little later: wait until all of it can be read. */
    private Map<String, Long> settled(List<MessageQueue> queues, long count) throws Exception {
        Map<String, Long> ends = new TreeMap<>();
        for (int attempt = 0; attempt < 600; attempt++) {
            long sum = 0;
            for (MessageQueue queue : queues) {
                long end = producer.maxOffset(queue);
                ends.put(Tool.queue(queue), end);
                sum += end;
            }
            if (sum >= count) {
                break;
            }
            TimeUnit.MILLISECONDS.sleep(100);
        }
        return ends;
    }

    private void load(MessageQueue queue, long from, long to) throws Exception {
        int batch = Math.max(1, tool.number("batchBytes", 1 << 20) / (size + PROPERTIES_BYTES));
        for (long index = from; index < to; index += batch) {
            List<Message> messages = new ArrayList<>(batch);
            for (long i = index; i < Math.min(index + batch, to); i++) {
                messages.add(new Message(topic, tags[(int) (i % tags.length)], "key-" + i,
                    Tool.body(i, size)));
            }
            send(queue, messages);
        }
    }

    /** A busy broker has stored nothing, so the batch can go again; all else is an error. */
    private void send(MessageQueue queue, List<Message> messages) throws Exception {
        for (int attempt = 0; ; attempt++) {
            try {
                producer.send(messages, queue);
                return;
            } catch (MQBrokerException error) {
                if (error.getResponseCode() != ResponseCode.SYSTEM_BUSY || attempt == 200) {
                    throw error;
                }
                TimeUnit.MILLISECONDS.sleep(20);
            }
        }
    }
}
