import com.alibaba.fastjson.JSON;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs commands of mqadmin one after another in this JVM.
 *
 * Each argument is a command with its words. "outputs" is what each printed.
 */
public final class Admin {
    private static final String QUIET = "<configuration><root level=\"OFF\"/></configuration>";

    private Admin() {
    }

    public static void main(String[] args) throws Exception {
        Path home = Paths.get(System.getProperty("user.home"));
        Path conf = Files.createDirectories(home.resolve("conf"));
        for (String name : new String[] {"logback_tools.xml", "rmq.tools.logback.xml"}) {
            Files.write(conf.resolve(name), QUIET.getBytes(StandardCharsets.UTF_8));
        }
        System.setProperty("rocketmq.home.dir", home.toString());
        PrintStream standard = System.out;
        List<String> outputs = new ArrayList<>();
        for (String command : args) {
            ByteArrayOutputStream said = new ByteArrayOutputStream();
            PrintStream both = new PrintStream(said, true, "UTF-8");
            System.setOut(both);
            System.setErr(both);
            MQAdminStartup.main0(command.split(" "), null);
            outputs.add(new String(said.toByteArray(), StandardCharsets.UTF_8));
        }
        System.setOut(standard);
        standard.println("RESULT " + JSON.toJSONString(Collections.singletonMap("outputs", outputs)));
        System.exit(0);
    }
}
