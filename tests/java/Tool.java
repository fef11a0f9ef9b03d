import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** What the programs share: arguments as key=value, one line with the result, bodies and their digest. */
final class Tool {
    private final Map<String, String> values = new LinkedHashMap<>();

    /** On the main thread: an error that ends it ends the program, whose clients would go on. */
    Tool(String[] args) {
        Thread.currentThread().setUncaughtExceptionHandler((thread, error) -> {
            error.printStackTrace();
            System.exit(1);
        });
        for (String arg : args) {
            int split = arg.indexOf('=');
            if (split < 0) {
                throw new IllegalArgumentException("not key=value: " + arg);
            }
            values.put(arg.substring(0, split), arg.substring(split + 1));
        }
    }

    String text(String key) {
        String value = values.get(key);
        if (value == null) {
            throw new IllegalArgumentException("missing argument " + key);
        }
        return value;
    }

    String text(String key, String otherwise) {
        return values.getOrDefault(key, otherwise);
    }

    int number(String key, int otherwise) {
        return values.containsKey(key) ? Integer.parseInt(values.get(key)) : otherwise;
    }

    double real(String key, double otherwise) {
        return values.containsKey(key) ? Double.parseDouble(values.get(key)) : otherwise;
    }

    boolean flag(String key, boolean otherwise) {
        return values.containsKey(key) ? Boolean.parseBoolean(values.get(key)) : otherwise;
    }

    /** What is the same for producers and consumers: namespace, vip and unit. */
    void configure(ClientConfig client) {
        if (!text("namespace", "").isEmpty()) {
            client.setNamespace(text("namespace"));
        }
        client.setVipChannelEnabled(flag("vip", false));
        if (!text("unit", "").isEmpty()) {
            client.setUnitName(text("unit"));
        }
    }

    static String json(Object value) {
        return JSON.toJSONString(value, SerializerFeature.DisableCircularReferenceDetect,
            SerializerFeature.WriteMapNullValue);
    }

    /** The result goes out, then the JVM ends with all client threads. */
    static void finish(Map<String, ?> result) {
        System.out.println("RESULT " + json(result));
        System.out.flush();
        System.exit(0);
    }

    /** Body number index: its number as 8 big-endian bytes, then (index * 31 + position) mod 256. */
    static byte[] body(long index, int size) {
        byte[] body = new byte[size];
        for (int i = 0; i < size; i++) {
            body[i] = i < 8 ? (byte) (index >>> (56 - 8 * i)) : (byte) (index * 31 + i);
        }
        return body;
    }

    static String queue(MessageQueue queue) {
        return queue.getTopic() + "/" + queue.getBrokerName() + "/" + queue.getQueueId();
    }

    /** A message as plain values, for comparison field by field. */
    static Map<String, Object> describe(MessageExt message, MessageQueue queue) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("topic", message.getTopic());
        line.put("brokerName", queue.getBrokerName());
        line.put("queueId", message.getQueueId());
        line.put("queueOffset", message.getQueueOffset());
        line.put("commitLogOffset", message.getCommitLogOffset());
        line.put("flag", message.getFlag());
        line.put("sysFlag", message.getSysFlag());
        line.put("storeSize", message.getStoreSize());
        line.put("bodyCRC", message.getBodyCRC());
        line.put("reconsumeTimes", message.getReconsumeTimes());
        line.put("bornTimestamp", message.getBornTimestamp());
        line.put("storeTimestamp", message.getStoreTimestamp());
        line.put("preparedTransactionOffset", message.getPreparedTransactionOffset());
        line.put("msgId", message.getMsgId());
        line.put("offsetMsgId", message instanceof MessageClientExt
            ? ((MessageClientExt) message).getOffsetMsgId() : null);
        line.put("tags", message.getTags());
        line.put("keys", message.getKeys());
        line.put("properties", new TreeMap<>(message.getProperties()));
        byte[] body = message.getBody();
        line.put("bodyLength", body == null ? -1 : body.length);
        line.put("bodySha256", body == null ? null : hex(sha256(body)));
        return line;
    }

    static byte[] sha256(byte[] bytes) {
        try {
            return MessageDigest.getInstance("SHA-256").digest(bytes);
        } catch (NoSuchAlgorithmException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    static String hex(byte[] bytes) {
        StringBuilder text = new StringBuilder();
        for (byte b : bytes) {
            text.append(String.format("%02x", b));
        }
        return text.toString();
    }

    static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    /** XOR of the SHA-256 of all bodies: the same for every order. */
    static final class Digest {
        private final byte[] sum = new byte[32];

        synchronized void add(byte[] body) {
            byte[] one = sha256(body == null ? new byte[0] : body);
            for (int i = 0; i < sum.length; i++) {
                sum[i] ^= one[i];
            }
        }

        synchronized String text() {
            return hex(sum);
        }
    }
}
