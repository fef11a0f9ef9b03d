import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.store.LocalFileOffsetStore;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.client.impl.MQClientManager;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * The offset file of a broadcasting group, written and read by the client's own store; no network.
 *
 * clientIp instanceName group; set=topic/broker/queue:offset,... to store these and no others. The
 * directory is the system property rocketmq.client.localOffsetStoreDir. The result has the client
 * id and what a fresh store reads for each queue of set= and read=topic/broker/queue,...
 */
public final class LocalOffsets {
    public static void main(String[] args) throws Exception {
        Tool tool = new Tool(args);
        ClientConfig config = new ClientConfig();
        config.setClientIP(tool.text("clientIp"));
        config.setInstanceName(tool.text("instanceName"));
        MQClientInstance instance = MQClientManager.getInstance().getOrCreateMQClientInstance(config);
        Map<MessageQueue, Long> offsets = new LinkedHashMap<>();
        for (String item : tool.text("set", "").split(",")) {
            int colon = item.lastIndexOf(':');
            if (colon > 0) {
                offsets.put(queue(item.substring(0, colon)), Long.valueOf(item.substring(colon + 1)));
            }
        }
        if (!offsets.isEmpty()) {
            LocalFileOffsetStore store = new LocalFileOffsetStore(instance, tool.text("group"));
            store.load();
            offsets.forEach((queue, offset) -> store.updateOffset(queue, offset, false));
            store.persistAll(new LinkedHashSet<>(offsets.keySet()));
        }
        LocalFileOffsetStore fresh = new LocalFileOffsetStore(instance, tool.text("group"));
        fresh.load();
        Map<String, Long> found = new TreeMap<>();
        for (MessageQueue queue : offsets.keySet()) {
            found.put(Tool.queue(queue), fresh.readOffset(queue, ReadOffsetType.READ_FROM_MEMORY));
        }
        for (String item : tool.text("read", "").split(",")) {
            if (!item.isEmpty()) {
                MessageQueue queue = queue(item);
                found.put(item, fresh.readOffset(queue, ReadOffsetType.READ_FROM_STORE));
            }
        }
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("clientId", instance.getClientId());
        result.put("offsets", found);
        Tool.finish(result);
    }

    private static MessageQueue queue(String text) {
        int last = text.lastIndexOf('/');
        int first = text.lastIndexOf('/', last - 1);
        return new MessageQueue(text.substring(0, first), text.substring(first + 1, last),
            Integer.parseInt(text.substring(last + 1)));
    }
}
