import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.Expression;

/** Compiles SQL92 expressions and evaluates them on properties, as the broker does. */
public class SqlEvaluate {
    public static void main(String[] args) throws Exception {
        String text = new String(Files.readAllBytes(Paths.get(args[0])), StandardCharsets.UTF_8);
        JSONObject given = JSON.parseObject(text);
        List<Object> results = new ArrayList<>();
        for (Object expression : given.getJSONArray("expressions")) {
            results.add(evaluate((String) expression, given.getJSONArray("properties")));
        }
        Map<String, Object> result = new HashMap<>();
        result.put("results", results);
        System.out.println("RESULT " + JSON.toJSONString(result,
            com.alibaba.fastjson.serializer.SerializerFeature.WriteMapNullValue));
    }

    private static List<Boolean> evaluate(String text, JSONArray rows) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get("SQL92").compile(text);
        } catch (Throwable error) {
            return null;
        }
        List<Boolean> found = new ArrayList<>();
        for (Object row : rows) {
            Map<String, String> properties = new HashMap<>();
            ((JSONObject) row).forEach((name, value) -> properties.put(name, (String) value));
            Object value = null;
            try {
                value = expression.evaluate(new MessageEvaluationContext(properties));
            } catch (Throwable error) {
                value = null;
            }
            found.add(value instanceof Boolean && (Boolean) value);
        }
        return found;
    }
}
