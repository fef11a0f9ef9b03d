import com.alibaba.fastjson.JSON;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.TransactionMQProducer;

/** The setters that the client's classes declare, as property names. */
public class ClientSettings {
    public static void main(String[] args) {
        Class<?>[] classes = {
            ClientConfig.class, DefaultMQPushConsumer.class, DefaultLitePullConsumer.class,
            DefaultMQProducer.class, TransactionMQProducer.class};
        Map<String, Object> found = new TreeMap<>();
        for (Class<?> one : classes) {
            TreeSet<String> names = new TreeSet<>();
            for (Method method : one.getDeclaredMethods()) {
                String name = method.getName();
                if (Modifier.isPublic(method.getModifiers()) && name.startsWith("set")
                    && method.getParameterCount() == 1) {
                    names.add(name.substring(3));
                }
            }
            found.put(one.getSimpleName(), names);
        }
        System.out.println("RESULT " + JSON.toJSONString(found));
    }
}
