import java.io.PrintWriter;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;

/**
 * Push consumer until count distinct (queue, offset) were seen or timeout seconds have passed.
 *
 * namesrv topic group count; tags=* from=first|last|yyyyMMddHHmmss pullBatch=32 consumeBatch=1
 * threads=20 timeout=60 linger=0.5 (seconds to wait for more than count) fail=0 (so many messages
 * are refused at their first delivery) broadcast=false output= (a file: one JSON line a message)
 * namespace= vip=false unit=
 */
public final class Consume {
    private final Tool tool;
    private final Tool.Digest digest = new Tool.Digest();
    private final Set<String> seen = ConcurrentHashMap.newKeySet();
    private final Map<String, Integer> queues = new TreeMap<>();
    private final AtomicLong duplicates = new AtomicLong();
    private final AtomicLong bytes = new AtomicLong();
    private final AtomicLong calls = new AtomicLong();
    private final AtomicLong refusals = new AtomicLong();
    private final PrintWriter output;
    private long firstAt;
    private long lastAt;

    private Consume(Tool tool) throws Exception {
        this.tool = tool;
        String path = tool.text("output", "");
        output = path.isEmpty() ? null : new PrintWriter(path, "UTF-8");
    }

    public static void main(String[] args) throws Exception {
        Tool.finish(new Consume(new Tool(args)).run());
    }

    private Map<String, Object> run() throws Exception {
        long count = tool.number("count", 1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(tool.text("group"));
        consumer.setNamesrvAddr(tool.text("namesrv"));
        consumer.setInstanceName("consume@" + System.nanoTime());
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
        consumer.subscribe(tool.text("topic"), tool.text("tags", "*"));
        consumer.registerMessageListener(
            (MessageListenerConcurrently) (messages, context) -> listen(messages, context));
        long deadline = System.nanoTime() + (long) (tool.real("timeout", 60) * 1e9);
        consumer.start();
        while (seen.size() < count && System.nanoTime() < deadline) {
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

    private ConsumeConcurrentlyStatus listen(
        java.util.List<MessageExt> messages, ConsumeConcurrentlyContext context) {
        calls.incrementAndGet();
        boolean refuse = false;
        for (MessageExt message : messages) {
            refuse |= message.getReconsumeTimes() == 0 && refuses();
        }
        if (refuse) {
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        }
        for (MessageExt message : messages) {
            String queue = Tool.queue(context.getMessageQueue());
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
                    output.println(Tool.json(Tool.describe(message, context.getMessageQueue())));
                }
            }
        }
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    }

    private synchronized boolean refuses() {
        if (refusals.get() >= tool.number("fail", 0)) {
            return false;
        }
        refusals.incrementAndGet();
        return true;
    }
}
