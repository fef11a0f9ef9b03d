import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.impl.consumer.ProcessQueue;
import org.apache.rocketmq.common.filter.FilterAPI;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.protocol.RequestCode;
import org.apache.rocketmq.common.protocol.header.PullMessageRequestHeader;
import org.apache.rocketmq.common.protocol.header.PullMessageResponseHeader;
import org.apache.rocketmq.common.protocol.heartbeat.SubscriptionData;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.SerializeType;

/**
 * The Java client's classes on the hot paths, one thread.
 *
 * bench=decode|filter|frame_decode|frame_encode|queue; warm=3 round=1 (seconds) rounds=5.
 * decode, filter: input (stored messages as in a pull body). decode: read=false (body, tags, keys
 * and queue offset of each message). filter: tags. frame_decode: input (whole frames), header=true
 * (also the typed pull header). frame_encode: serialize=JSON|ROCKETMQ. queue: held batch=32.
 */
public final class Peers {
    /** What a measured loop computes ends here, so that the JIT cannot drop the loop. */
    private static volatile long sink;

    private final Tool tool;
    private final Rounds rounds;

    private Peers(Tool tool) {
        this.tool = tool;
        rounds = new Rounds(tool);
    }

    public static void main(String[] args) throws Exception {
        Tool.finish(new Peers(new Tool(args)).run());
    }

    private Map<String, Object> run() throws Exception {
        switch (tool.text("bench")) {
            case "decode":
                return decode();
            case "filter":
                return filter();
            case "frame_decode":
                return frameDecode();
            case "frame_encode":
                return frameEncode();
            case "queue":
                return queue();
            default:
                throw new IllegalArgumentException("bench " + tool.text("bench"));
        }
    }

    private byte[] input() throws Exception {
        return Files.readAllBytes(Paths.get(tool.text("input")));
    }

    private Map<String, Object> decode() throws Exception {
        byte[] body = input();
        int messages = MessageDecoder.decodes(ByteBuffer.wrap(body)).size();
        Map<String, Object> result;
        if (tool.flag("read", false)) {
            result = rounds.measure("decode and read", "messages/s", () -> {
                List<MessageExt> decoded = MessageDecoder.decodes(ByteBuffer.wrap(body));
                long sum = 0;
                for (MessageExt message : decoded) {
                    byte[] bytes = message.getBody();
                    String tags = message.getTags();
                    String keys = message.getKeys();
                    sum += (bytes == null ? 0 : bytes.length) + message.getQueueOffset()
                        + (tags == null ? 0 : tags.length()) + (keys == null ? 0 : keys.length());
                }
                sink = sum;
                return decoded.size();
            });
        } else {
            result = rounds.measure("decode", "messages/s", () -> {
                List<MessageExt> decoded = MessageDecoder.decodes(ByteBuffer.wrap(body));
                sink = decoded.size();
                return decoded.size();
            });
        }
        result.put("messages", messages);
        result.put("bytes", body.length);
        return result;
    }

    /** The loop of PullAPIWrapper over the decoded messages of one pull. */
    private Map<String, Object> filter() throws Exception {
        List<MessageExt> decoded = MessageDecoder.decodes(ByteBuffer.wrap(input()));
        SubscriptionData subscription =
            FilterAPI.buildSubscriptionData("Bench", tool.text("tags", "TagA"));
        Rounds.Step step = () -> {
            List<MessageExt> kept = new ArrayList<>(decoded.size());
            for (MessageExt message : decoded) {
                if (message.getTags() != null
                    && subscription.getTagsSet().contains(message.getTags())) {
                    kept.add(message);
                }
            }
            sink = kept.size();
            return decoded.size();
        };
        step.run();
        long kept = sink;
        Map<String, Object> result = rounds.measure("tag filter", "messages/s", step);
        result.put("messages", decoded.size());
        result.put("kept", kept);
        return result;
    }

    private Map<String, Object> frameDecode() throws Exception {
        ByteBuf all = Unpooled.wrappedBuffer(input());
        List<ByteBuf> frames = new ArrayList<>();
        // The frame decoder of the client hands over frames without their length prefix.
        while (all.isReadable()) {
            frames.add(all.readSlice(all.readInt()));
        }
        boolean header = tool.flag("header", true);
        Map<String, Object> result = rounds.measure(
            header ? "frame decode with pull header" : "frame decode", "frames/s", () -> {
                long sum = 0;
                for (ByteBuf frame : frames) {
                    RemotingCommand command = RemotingCommand.decode(frame.duplicate());
                    sum += command.getBody() == null ? 0 : command.getBody().length;
                    if (header) {
                        sum += ((PullMessageResponseHeader) command.decodeCommandCustomHeader(
                            PullMessageResponseHeader.class)).getNextBeginOffset();
                    }
                }
                sink = sum;
                return frames.size();
            });
        result.put("frames", frames.size());
        result.put("bytes", all.capacity());
        return result;
    }

    private Map<String, Object> frameEncode() throws Exception {
        SerializeType type = SerializeType.valueOf(tool.text("serialize", "JSON"));
        long[] offset = {0};
        Rounds.Step step = () -> {
            PullMessageRequestHeader header = new PullMessageRequestHeader();
            header.setConsumerGroup("benchmark_group");
            header.setTopic("BenchmarkTopic");
            header.setQueueId(3);
            header.setQueueOffset(offset[0]++);
            header.setMaxMsgNums(32);
            header.setSysFlag(3);
            header.setCommitOffset(offset[0]);
            header.setSuspendTimeoutMillis(15000L);
            header.setSubscription("TagA || TagB");
            header.setSubVersion(1700000000000L);
            header.setExpressionType("TAG");
            RemotingCommand command =
                RemotingCommand.createRequestCommand(RequestCode.PULL_MESSAGE, header);
            command.setSerializeTypeCurrentRPC(type);
            sink = command.encode().remaining();
            return 1;
        };
        Map<String, Object> result =
            rounds.measure("frame encode " + type, "frames/s", step);
        result.put("bytes", sink);
        return result;
    }

    /** Holds a number of messages; each step puts a batch at the end and removes the oldest. */
    private Map<String, Object> queue() throws Exception {
        int size = tool.number("batch", 32);
        int held = Math.max(1, tool.number("held", 1000) / size);
        byte[] body = new byte[tool.number("size", 100)];
        Map<String, String> properties =
            Collections.singletonMap(MessageConst.PROPERTY_MAX_OFFSET, "1000000000");
        // One batch more than is held: the batch that was just removed is put again, renumbered.
        List<List<MessageExt>> ring = new ArrayList<>();
        for (int i = 0; i <= held; i++) {
            List<MessageExt> batch = new ArrayList<>(size);
            for (int j = 0; j < size; j++) {
                MessageExt message = new MessageExt();
                message.setBody(body);
                MessageAccessor.setProperties(message, properties);
                batch.add(message);
            }
            ring.add(batch);
        }
        ProcessQueue queue = new ProcessQueue();
        long[] next = {0};
        Runnable put = () -> {
            List<MessageExt> batch = ring.get((int) (next[0] % ring.size()));
            long offset = next[0] * size;
            for (MessageExt message : batch) {
                message.setQueueOffset(offset++);
            }
            queue.putMessage(batch);
            next[0]++;
        };
        for (int i = 0; i < held; i++) {
            put.run();
        }
        Map<String, Object> result =
            rounds.measure("process queue put and remove", "messages/s", () -> {
                put.run();
                sink = queue.removeMessage(ring.get((int) ((next[0] - 1 - held) % ring.size())));
                return size;
            });
        if (queue.getMsgCount().get() != (long) held * size) {
            throw new IllegalStateException("the queue holds " + queue.getMsgCount());
        }
        result.put("held", held * size);
        result.put("batch", size);
        return result;
    }
}
