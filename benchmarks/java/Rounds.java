import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Warm-up, then timed rounds: the rate of each, their median and the best. */
final class Rounds {
    /** One step of the measured work; returns how many units it did. */
    interface Step {
        long run() throws Exception;
    }

    private final double warmSeconds;
    private final double roundSeconds;
    private final int rounds;

    Rounds(Tool tool) {
        warmSeconds = tool.real("warm", 3);
        roundSeconds = tool.real("round", 1);
        rounds = tool.number("rounds", 5);
    }

    Map<String, Object> measure(String name, String unit, Step step) throws Exception {
        rate(step, warmSeconds);
        List<Double> rates = new ArrayList<>();
        for (int round = 0; round < rounds; round++) {
            rates.add(rate(step, roundSeconds));
        }
        List<Double> sorted = new ArrayList<>(rates);
        Collections.sort(sorted);
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("bench", name);
        result.put("unit", unit);
        result.put("median", sorted.get(sorted.size() / 2));
        result.put("best", sorted.get(sorted.size() - 1));
        result.put("rounds", rates);
        result.put("java", System.getProperty("java.version"));
        return result;
    }

    /**
     * Units a second of the CPU time of this process, the collector included: other load on the
     * machine slows neither side of a comparison then. The clock is looked at about once a
     * millisecond, for that is a system call.
     */
    private static double rate(Step step, double seconds) throws Exception {
        OperatingSystemMXBean clock =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long started = clock.getProcessCpuTime();
        long until = started + (long) (seconds * 1e9);
        long units = 0;
        long calls = 1;
        long now = started;
        do {
            long before = now;
            for (long call = 0; call < calls; call++) {
                units += step.run();
            }
            now = clock.getProcessCpuTime();
            if (now - before < 1_000_000) {
                calls *= 2;
            }
        } while (now < until);
        return units / ((now - started) / 1e9);
    }
}
