import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.Consumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * The push consumer's rate from the first to the last of count messages; the listener reads body,
 * tags and keys of each.
 *
 * namesrv topic group count; pullBatch and consumeBatch (the client's defaults, 32 and 1, when not
 * given) tags=* timeout=300 (seconds) orderly=false idle=0 (so many seconds without messages follow,
 * whose CPU time is told). The group must be new: it starts at the first offset.
 */
public final class PushThroughput {
    private PushThroughput() {
    }

    public static void main(String[] args) throws Exception {
        Tool tool = new Tool(args);
        long count = Long.parseLong(tool.text("count"));
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(tool.text("group"));
        consumer.setNamesrvAddr(tool.text("namesrv"));
        consumer.setInstanceName("throughput@" + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPullBatchSize(tool.number("pullBatch", consumer.getPullBatchSize()));
        consumer.setConsumeMessageBatchMaxSize(
            tool.number("consumeBatch", consumer.getConsumeMessageBatchMaxSize()));
        consumer.subscribe(tool.text("topic"), tool.text("tags", "*"));
        AtomicLong messages = new AtomicLong();
        AtomicLong firstAt = new AtomicLong();
        AtomicLong lastAt = new AtomicLong();
        LongAdder calls = new LongAdder();
        LongAdder bytes = new LongAdder();
        LongAdder characters = new LongAdder();
        CountDownLatch done = new CountDownLatch(1);
        Consumer<List<MessageExt>> listener = batch -> {
            if (firstAt.get() == 0) {
                firstAt.compareAndSet(0, System.nanoTime());
            }
            long length = 0;
            long text = 0;
            for (MessageExt message : batch) {
                byte[] body = message.getBody();
                String tags = message.getTags();
                String keys = message.getKeys();
                length += body == null ? 0 : body.length;
                text += (tags == null ? 0 : tags.length()) + (keys == null ? 0 : keys.length());
            }
            bytes.add(length);
            characters.add(text);
            calls.increment();
            long now = messages.addAndGet(batch.size());
            if (now >= count && now - batch.size() < count) {
                lastAt.set(System.nanoTime());
                done.countDown();
            }
        };
        if (tool.flag("orderly", false)) {
            consumer.registerMessageListener((MessageListenerOrderly) (batch, context) -> {
                listener.accept(batch);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (batch, context) -> {
                listener.accept(batch);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        long startedAt = System.nanoTime();
        consumer.start();
        boolean complete = done.await(tool.number("timeout", 300), TimeUnit.SECONDS);
        double reachedSeconds = (System.nanoTime() - startedAt) / 1e9;
        long peakRss = peakRssBytes();
        OperatingSystemMXBean clock =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        double cpuSeconds = clock.getProcessCpuTime() / 1e9;
        TimeUnit.MILLISECONDS.sleep(200);
        double idle = tool.real("idle", 0);
        long idleFrom = clock.getProcessCpuTime();
        TimeUnit.MILLISECONDS.sleep((long) (idle * 1000));
        double idleCpuSeconds = (clock.getProcessCpuTime() - idleFrom) / 1e9;
        int processThreads = ManagementFactory.getThreadMXBean().getThreadCount();
        consumer.shutdown();
        double seconds = ((complete ? lastAt.get() : System.nanoTime()) - firstAt.get()) / 1e9;
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("messages", messages.get());
        result.put("complete", complete);
        result.put("bytes", bytes.sum());
        result.put("characters", characters.sum());
        result.put("calls", calls.sum());
        result.put("seconds", seconds);
        result.put("messages_per_second", messages.get() / seconds);
        result.put("pull_batch", consumer.getPullBatchSize());
        result.put("consume_batch", consumer.getConsumeMessageBatchMaxSize());
        result.put("threads", consumer.getConsumeThreadMax());
        result.put("peak_rss_bytes", peakRss);
        result.put("cpu_seconds", cpuSeconds);
        result.put("reached_seconds", reachedSeconds);
        result.put("process_threads", processThreads);
        result.put("idle_seconds", idle);
        result.put("idle_cpu_seconds", idleCpuSeconds);
        Tool.finish(result);
    }

    /** The most resident memory that this process had; 0 where the system does not tell it. */
    private static long peakRssBytes() throws Exception {
        Path status = Paths.get("/proc/self/status");
        if (!Files.isReadable(status)) {
            return 0;
        }
        for (String line : Files.readAllLines(status)) {
            if (line.startsWith("VmHWM:")) {
                return Long.parseLong(line.replaceAll("[^0-9]", "")) * 1024;
            }
        }
        return 0;
    }
}
