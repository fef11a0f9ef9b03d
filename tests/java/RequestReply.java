import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Asks, or answers, count requests with the Java client.
 *
 * namesrv topic group count mode=ask|answer timeout=60 (seconds). A request has the body ask-i, its
 * answer "re: " before that.
 */
public final class RequestReply {
    private RequestReply() {
    }

    public static void main(String[] args) throws Exception {
        Tool tool = new Tool(args);
        Tool.finish(tool.text("mode").equals("ask") ? ask(tool) : answer(tool));
    }

    private static DefaultMQProducer producer(Tool tool) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(tool.text("group") + "_p");
        producer.setNamesrvAddr(tool.text("namesrv"));
        producer.setSendMsgTimeout(10000);
        producer.start();
        return producer;
    }

    private static Map<String, Object> ask(Tool tool) throws Exception {
        DefaultMQProducer producer = producer(tool);
        List<Object> replies = new ArrayList<>();
        for (int i = 0; i < tool.number("count", 1); i++) {
            byte[] body = ("ask-" + i).getBytes(StandardCharsets.UTF_8);
            Message request = new Message(tool.text("topic"), "tag", body);
            // The variant without a selector returns the request itself in 4.9.4.
            Message reply = producer.request(
                request, new SelectMessageQueueByHash(), i, tool.number("timeout", 60) * 1000L);
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("body", new String(reply.getBody(), StandardCharsets.UTF_8));
            line.put("topic", reply.getTopic());
            line.put("properties", new TreeMap<>(reply.getProperties()));
            replies.add(line);
        }
        producer.shutdown();
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("replies", replies);
        return result;
    }

    private static Map<String, Object> answer(Tool tool) throws Exception {
        DefaultMQProducer producer = producer(tool);
        AtomicInteger answered = new AtomicInteger();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(tool.text("group"));
        consumer.setNamesrvAddr(tool.text("namesrv"));
        consumer.setInstanceName("answer@" + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(tool.text("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt request : messages) {
                try {
                    String body = "re: " + new String(request.getBody(), StandardCharsets.UTF_8);
                    Message reply = MessageUtil.createReplyMessage(
                        request, body.getBytes(StandardCharsets.UTF_8));
                    producer.send(reply, 10000);
                    answered.incrementAndGet();
                } catch (Exception error) {
                    throw new IllegalStateException(error);
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        long deadline = System.nanoTime() + (long) (tool.real("timeout", 60) * 1e9);
        while (answered.get() < tool.number("count", 1) && System.nanoTime() < deadline) {
            TimeUnit.MILLISECONDS.sleep(5);
        }
        consumer.shutdown();
        producer.shutdown();
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("answered", answered.get());
        return result;
    }
}
