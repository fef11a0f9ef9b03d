import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends messages of every kind that the Java producer knows, and gives one back for another try.
 *
 * namesrv topic group. The result has, by key, the SHA-256 of the body of each message that will be
 * in the topic, at once or after the first delay level; `returned` is the key of the one that will be
 * in the group's retry topic too.
 */
public final class Kinds implements TransactionListener {
    private static final int LARGE = (4 << 20) - (8 << 10);

    private final Map<String, String> expected = new LinkedHashMap<>();
    private final TransactionMQProducer producer;
    private final Tool tool;

    private Kinds(Tool tool) {
        this.tool = tool;
        producer = new TransactionMQProducer(tool.text("group") + "_producer");
        producer.setNamesrvAddr(tool.text("namesrv"));
        producer.setSendMsgTimeout(30000);
        producer.setTransactionListener(this);
    }

    public static void main(String[] args) throws Exception {
        Tool.finish(new Kinds(new Tool(args)).run());
    }

    private Message message(String key, byte[] body) {
        expected.put(key, Tool.hex(Tool.sha256(body)));
        return new Message(tool.text("topic"), "tag", key, body);
    }

    private Map<String, Object> run() throws Exception {
        producer.start();
        SendResult first = producer.send(message("plain", Tool.utf8("plain")));
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 20; i++) {
            batch.add(message("batch-" + i, Tool.body(i, 50)));
        }
        producer.send(batch);
        producer.send(message("compressed", Tool.body(1, 10000)));
        producer.send(message("large-compressed", Tool.body(2, 4 << 20)));
        byte[] noise = new byte[LARGE];
        new Random(3).nextBytes(noise);
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        producer.send(message("large", noise));
        Message unicode = message("schlüssel-✓", Tool.utf8("größe"));
        unicode.setTags("Tag-ü");
        unicode.putUserProperty("größe", "✓ 漢字 \uD83D\uDE80");
        producer.send(unicode);
        Message delayed = message("delayed", Tool.utf8("delayed"));
        delayed.setDelayTimeLevel(1);
        producer.send(delayed);
        producer.sendMessageInTransaction(message("commit", Tool.utf8("commit")), true);
        producer.sendMessageInTransaction(message("rollback", Tool.utf8("rollback")), false);
        expected.remove("rollback");
        giveBack(first);
        producer.shutdown();
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("expected", expected);
        result.put("returned", "plain");
        return result;
    }

    private void giveBack(SendResult sent) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(tool.text("group"));
        consumer.setNamesrvAddr(tool.text("namesrv"));
        consumer.setInstanceName("kinds@" + System.nanoTime());
        consumer.start();
        PullResult found = consumer.pullBlockIfNotFound(
            sent.getMessageQueue(), "*", sent.getQueueOffset(), 1);
        MessageExt message = found.getMsgFoundList().get(0);
        consumer.sendMessageBack(message, 1, sent.getMessageQueue().getBrokerName());
        consumer.shutdown();
    }

    @Override
    public LocalTransactionState executeLocalTransaction(Message message, Object commit) {
        return (Boolean) commit ? LocalTransactionState.COMMIT_MESSAGE
            : LocalTransactionState.ROLLBACK_MESSAGE;
    }

    @Override
    public LocalTransactionState checkLocalTransaction(MessageExt message) {
        return LocalTransactionState.UNKNOW;
    }
}
