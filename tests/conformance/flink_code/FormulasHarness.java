/*
 * Asks Flink's own classes for what they compute: sizes of buffers (debloating), key groups and their owners.
 *
 * One line in, one line out.
 *   debloat MAX MIN TARGET_MS THRESHOLD_PERCENT SAMPLES THROUGHPUT BUFFERS ...
 *       for each pair: the size announced or "-", and the estimated ms to consume what is buffered
 *   groups PARALLELISM MAX_PARALLELISM
 *       first and last key group of each subtask, then the owner of each key group
 *   default PARALLELISM
 *       the default maximum parallelism
 */
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.OptionalInt;
import java.util.StringJoiner;
import java.util.StringTokenizer;
import org.apache.flink.runtime.state.KeyGroupRange;
import org.apache.flink.runtime.state.KeyGroupRangeAssignment;
import org.apache.flink.runtime.throughput.BufferDebloater;

public final class FormulasHarness {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = new PrintStream(System.out, false);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(answer(new StringTokenizer(line)));
        }
        out.flush();
    }

    private static String answer(StringTokenizer words) {
        String kind = words.nextToken();
        switch (kind) {
            case "debloat":
                return debloat(words);
            case "groups":
                return groups(number(words), number(words));
            default:
                return String.valueOf(KeyGroupRangeAssignment.computeDefaultMaxParallelism(number(words)));
        }
    }

    private static String debloat(StringTokenizer words) {
        int max = number(words);
        int min = number(words);
        long targetMs = number(words);
        int thresholdPercent = number(words);
        BufferDebloater debloater =
                new BufferDebloater("task", 0, targetMs, max, min, thresholdPercent, number(words));
        StringJoiner all = new StringJoiner(" ");
        while (words.hasMoreTokens()) {
            OptionalInt announced = debloater.recalculateBufferSize(Long.parseLong(words.nextToken()), number(words));
            all.add(announced.isPresent() ? String.valueOf(announced.getAsInt()) : "-");
            all.add(String.valueOf(debloater.getLastEstimatedTimeToConsumeBuffers().toMillis()));
        }
        return all.toString();
    }

    private static String groups(int parallelism, int maxParallelism) {
        StringJoiner all = new StringJoiner(" ");
        for (int subtask = 0; subtask < parallelism; subtask++) {
            KeyGroupRange range =
                    KeyGroupRangeAssignment.computeKeyGroupRangeForOperatorIndex(maxParallelism, parallelism, subtask);
            all.add(range.getStartKeyGroup() + "-" + range.getEndKeyGroup());
        }
        for (int group = 0; group < maxParallelism; group++) {
            all.add(
                    String.valueOf(
                            KeyGroupRangeAssignment.computeOperatorIndexForKeyGroup(
                                    maxParallelism, parallelism, group)));
        }
        return all.toString();
    }

    private static int number(StringTokenizer words) {
        return Integer.parseInt(words.nextToken());
    }
}
