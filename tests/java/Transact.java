import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends count messages of each kind in transactions of the Java producer, until all were decided.
 *
 * namesrv topic group count timeout=60. Kinds, which are the beginnings of the bodies: commit,
 * rollback, and asked-commit and asked-rollback, which are UNKNOW until the broker asks.
 */
public final class Transact implements TransactionListener {
    private static final String[] KINDS = {"commit", "rollback", "asked-commit", "asked-rollback"};

    private final Map<String, Integer> checks = new ConcurrentHashMap<>();
    private final Map<String, String> topics = new ConcurrentHashMap<>();

    public static void main(String[] args) throws Exception {
        Tool.finish(new Transact().run(new Tool(args)));
    }

    private Map<String, Object> run(Tool tool) throws Exception {
        int count = tool.number("count", 1);
        TransactionMQProducer producer = new TransactionMQProducer(tool.text("group"));
        producer.setNamesrvAddr(tool.text("namesrv"));
        producer.setSendMsgTimeout(10000);
        // A broker knows by heartbeats whom to ask, and asks a few times only.
        producer.setHeartbeatBrokerInterval(500);
        producer.setTransactionListener(this);
        producer.start();
        Map<String, Integer> states = new LinkedHashMap<>();
        for (int i = 0; i < count; i++) {
            for (String kind : KINDS) {
                byte[] body = (kind + "-" + i).getBytes(StandardCharsets.UTF_8);
                TransactionSendResult result = producer.sendMessageInTransaction(
                    new Message(tool.text("topic"), "tag", "key-" + i, body), kind);
                states.merge(result.getLocalTransactionState().name(), 1, Integer::sum);
            }
        }
        long deadline = System.nanoTime() + (long) (tool.real("timeout", 60) * 1e9);
        while (checks.size() < 2 * count && System.nanoTime() < deadline) {
            TimeUnit.MILLISECONDS.sleep(5);
        }
        // The last answers are on their way: they are sent without waiting.
        TimeUnit.MILLISECONDS.sleep(500);
        producer.shutdown();
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("states", states);
        result.put("checks", checks);
        result.put("topics", topics);
        return result;
    }

    @Override
    public LocalTransactionState executeLocalTransaction(Message message, Object kind) {
        switch ((String) kind) {
            case "commit":
                return LocalTransactionState.COMMIT_MESSAGE;
            case "rollback":
                return LocalTransactionState.ROLLBACK_MESSAGE;
            default:
                return LocalTransactionState.UNKNOW;
        }
    }

    @Override
    public LocalTransactionState checkLocalTransaction(MessageExt message) {
        String body = new String(message.getBody(), StandardCharsets.UTF_8);
        checks.merge(body, 1, Integer::sum);
        topics.put(body, message.getTopic());
        return body.startsWith("asked-commit")
            ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
    }
}
