import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.trace.TraceBean;
import org.apache.rocketmq.client.trace.TraceContext;
import org.apache.rocketmq.client.trace.TraceDataEncoder;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** Trace records of a topic, as Java's decoder reads them: namesrv topic group count timeout=60. */
public final class TraceDump {
    private TraceDump() {
    }

    public static void main(String[] args) throws Exception {
        Tool tool = new Tool(args);
        List<Map<String, Object>> records = Collections.synchronizedList(new ArrayList<>());
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(tool.text("group"));
        consumer.setNamesrvAddr(tool.text("namesrv"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(tool.text("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                String data = new String(message.getBody(), StandardCharsets.UTF_8);
                for (TraceContext trace : TraceDataEncoder.decoderFromTraceDataString(data)) {
                    records.add(describe(trace, message.getKeys()));
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        long deadline = System.nanoTime() + (long) (tool.real("timeout", 60) * 1e9);
        while (records.size() < tool.number("count", 1) && System.nanoTime() < deadline) {
            TimeUnit.MILLISECONDS.sleep(5);
        }
        consumer.shutdown();
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("records", new ArrayList<>(records));
        Tool.finish(result);
    }

    private static Map<String, Object> describe(TraceContext trace, String keys) {
        TraceBean bean = trace.getTraceBeans().get(0);
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("messageKeys", keys);
        line.put("type", trace.getTraceType().name());
        line.put("timeStamp", trace.getTimeStamp());
        line.put("region", trace.getRegionId());
        line.put("group", trace.getGroupName());
        line.put("cost", trace.getCostTime());
        line.put("success", trace.isSuccess());
        line.put("requestId", trace.getRequestId());
        line.put("code", trace.getContextCode());
        line.put("topic", bean.getTopic());
        line.put("msgId", bean.getMsgId());
        line.put("offsetMsgId", bean.getOffsetMsgId());
        line.put("tags", bean.getTags());
        line.put("keys", bean.getKeys());
        line.put("storeHost", bean.getStoreHost());
        line.put("bodyLength", bean.getBodyLength());
        line.put("retryTimes", bean.getRetryTimes());
        line.put("kind", bean.getMsgType() == null ? null : bean.getMsgType().name());
        line.put("state",
            bean.getTransactionState() == null ? null : bean.getTransactionState().name());
        line.put("transactionId", bean.getTransactionId());
        line.put("fromCheck", bean.isFromTransactionCheck());
        return line;
    }
}
