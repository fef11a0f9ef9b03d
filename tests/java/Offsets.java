import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.RequestCode;
import org.apache.rocketmq.common.protocol.ResponseCode;
import org.apache.rocketmq.common.protocol.body.ConsumerOffsetSerializeWrapper;
import org.apache.rocketmq.common.protocol.route.BrokerData;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/**
 * Minimum, maximum and committed offset of every queue of a topic.
 *
 * namesrv topic group. "committed" is the entry in the broker's own table, null where the group
 * has none; "queried" is what a consumer is answered (-1: none), which for a queue that still has
 * its first message is 0 even for a new group.
 */
public final class Offsets {
    private static final long TIMEOUT_MILLIS = 5000;

    private Offsets() {
    }

    public static void main(String[] args) throws Exception {
        Tool tool = new Tool(args);
        String topic = tool.text("topic");
        String group = tool.text("group");
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(group);
        consumer.setNamesrvAddr(tool.text("namesrv"));
        consumer.setInstanceName("offsets@" + System.nanoTime());
        consumer.start();
        MQClientInstance factory = consumer.getDefaultMQPullConsumerImpl()
            .getRebalanceImpl().getmQClientFactory();
        MQClientAPIImpl api = factory.getMQClientAPIImpl();
        Map<String, Map<Integer, Long>> tables = new HashMap<>();
        Map<String, String> problems = new TreeMap<>();
        for (BrokerData broker
            : api.getTopicRouteInfoFromNameServer(topic, TIMEOUT_MILLIS).getBrokerDatas()) {
            RemotingCommand answer = api.getRemotingClient().invokeSync(broker.selectBrokerAddr(),
                RemotingCommand.createRequestCommand(RequestCode.GET_ALL_CONSUMER_OFFSET, null),
                TIMEOUT_MILLIS);
            if (answer.getCode() != ResponseCode.SUCCESS) {
                problems.put(broker.getBrokerName(), answer.getCode() + " " + answer.getRemark());
                continue;
            }
            ConcurrentMap<Integer, Long> table = ConsumerOffsetSerializeWrapper.decode(
                answer.getBody(), ConsumerOffsetSerializeWrapper.class)
                .getOffsetTable().get(topic + "@" + group);
            tables.put(broker.getBrokerName(), table == null ? new HashMap<>() : table);
        }
        Map<String, Object> queues = new TreeMap<>();
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic)) {
            Map<String, Object> entry = new LinkedHashMap<>();
            entry.put("min", consumer.minOffset(queue));
            entry.put("max", consumer.maxOffset(queue));
            Map<Integer, Long> table = tables.get(queue.getBrokerName());
            entry.put("committed", table == null ? null : table.get(queue.getQueueId()));
            entry.put("queried", consumer.fetchConsumeOffset(queue, true));
            queues.put(Tool.queue(queue), entry);
        }
        consumer.shutdown();
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("topic", topic);
        result.put("group", group);
        result.put("queues", queues);
        result.put("problems", problems);
        Tool.finish(result);
    }
}
