import java.io.PrintWriter;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * The witness: reads every queue of a topic from its minimum to its maximum offset.
 *
 * namesrv topic; group=java_pull_dump tags=* batch=32 output= (a file: one JSON line a message)
 * count=0 (wait up to 30 s until the topic holds so many: a broker indexes a little later)
 */
public final class PullDump {
    private PullDump() {
    }

    public static void main(String[] args) throws Exception {
        Tool tool = new Tool(args);
        DefaultMQPullConsumer consumer =
            new DefaultMQPullConsumer(tool.text("group", "java_pull_dump"));
        consumer.setNamesrvAddr(tool.text("namesrv"));
        consumer.setInstanceName("dump@" + System.nanoTime());
        consumer.start();
        String path = tool.text("output", "");
        PrintWriter output = path.isEmpty() ? null : new PrintWriter(path, "UTF-8");
        Tool.Digest digest = new Tool.Digest();
        Map<String, Object> queues = new TreeMap<>();
        Map<String, Integer> tags = new TreeMap<>();
        long total = 0;
        long bytes = 0;
        Set<MessageQueue> all = consumer.fetchSubscribeMessageQueues(tool.text("topic"));
        for (int i = 0; i < 300 && held(consumer, all) < tool.number("count", 0); i++) {
            TimeUnit.MILLISECONDS.sleep(100);
        }
        for (MessageQueue queue : all) {
            long minimum = consumer.minOffset(queue);
            long maximum = consumer.maxOffset(queue);
            long offset = minimum;
            long count = 0;
            while (offset < maximum) {
                PullResult pulled =
                    consumer.pull(queue, tool.text("tags", "*"), offset, tool.number("batch", 32));
                if (pulled.getPullStatus() == PullStatus.FOUND) {
                    for (MessageExt message : pulled.getMsgFoundList()) {
                        count++;
                        bytes += message.getBody() == null ? 0 : message.getBody().length;
                        digest.add(message.getBody());
                        tags.merge(String.valueOf(message.getTags()), 1, Integer::sum);
                        if (output != null) {
                            output.println(Tool.json(Tool.describe(message, queue)));
                        }
                    }
                } else if (pulled.getNextBeginOffset() <= offset) {
                    throw new IllegalStateException(
                        queue + " stands at " + offset + " of " + maximum + ": " + pulled);
                }
                offset = pulled.getNextBeginOffset();
            }
            Map<String, Object> entry = new LinkedHashMap<>();
            entry.put("min", minimum);
            entry.put("max", maximum);
            entry.put("messages", count);
            queues.put(Tool.queue(queue), entry);
            total += count;
        }
        consumer.shutdown();
        if (output != null) {
            output.close();
        }
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("messages", total);
        result.put("bytes", bytes);
        result.put("digest", digest.text());
        result.put("queues", queues);
        result.put("tags", tags);
        Tool.finish(result);
    }

    private static long held(DefaultMQPullConsumer consumer, Set<MessageQueue> queues)
        throws Exception {
        long sum = 0;
        for (MessageQueue queue : queues) {
            sum += consumer.maxOffset(queue) - consumer.minOffset(queue);
        }
        return sum;
    }
}
