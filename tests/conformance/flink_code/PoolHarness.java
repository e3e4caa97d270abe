/*
 * Drives Flink's own LocalBufferPool, and asks for the key group of a number.
 *
 * One line in, one line out.
 *   pool CHANNELS SIZE MAX_PER_CHANNEL OVERDRAFT, then steps:
 *     rN   a buffer is requested for channel N: + or - (refused)
 *     gN   the oldest buffer of channel N comes back: = (there is none), else <
 *     behind each, whether the pool is available (a) or not (u), and after all steps what is requested
 *   group KEY MAX_PARALLELISM
 */
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.StringJoiner;
import java.util.StringTokenizer;
import org.apache.flink.runtime.io.network.buffer.BufferBuilder;
import org.apache.flink.runtime.io.network.buffer.BufferPool;
import org.apache.flink.runtime.io.network.buffer.NetworkBufferPool;
import org.apache.flink.runtime.state.KeyGroupRangeAssignment;

public final class PoolHarness {
    private static final int SEGMENT_BYTES = 64;
    private static final NetworkBufferPool SEGMENTS = new NetworkBufferPool(1000, SEGMENT_BYTES);

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = new PrintStream(System.out, false);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            StringTokenizer words = new StringTokenizer(line);
            out.println(words.nextToken().equals("pool") ? pool(words) : group(words));
        }
        out.flush();
    }

    private static String group(StringTokenizer words) {
        Integer key = Integer.valueOf(words.nextToken());
        return String.valueOf(KeyGroupRangeAssignment.assignToKeyGroup(key, Integer.parseInt(words.nextToken())));
    }

    private static String pool(StringTokenizer words) throws Exception {
        int channels = Integer.parseInt(words.nextToken());
        int size = Integer.parseInt(words.nextToken());
        int perChannel = Integer.parseInt(words.nextToken());
        BufferPool pool = SEGMENTS.createBufferPool(
                channels + 1, size, channels, perChannel, Integer.parseInt(words.nextToken()));
        List<ArrayDeque<BufferBuilder>> held = new ArrayList<>();
        for (int channel = 0; channel < channels; channel++) {
            held.add(new ArrayDeque<>());
        }
        StringJoiner all = new StringJoiner(" ");
        while (words.hasMoreTokens()) {
            String step = words.nextToken();
            int channel = Integer.parseInt(step.substring(1));
            String done = step.startsWith("r") ? request(pool, channel, held) : giveBack(held.get(channel));
            all.add(done + (pool.isAvailable() ? "a" : "u"));
        }
        all.add(String.valueOf(pool.bestEffortGetNumOfUsedBuffers()));
        for (ArrayDeque<BufferBuilder> ofChannel : held) {
            while (!ofChannel.isEmpty()) {
                giveBack(ofChannel);
            }
        }
        pool.lazyDestroy();
        return all.toString();
    }

    private static String request(BufferPool pool, int channel, List<ArrayDeque<BufferBuilder>> held) {
        BufferBuilder builder = pool.requestBufferBuilder(channel);
        if (builder == null) {
            return "-";
        }
        held.get(channel).add(builder);
        return "+";
    }

    private static String giveBack(ArrayDeque<BufferBuilder> held) {
        BufferBuilder builder = held.poll();
        if (builder == null) {
            return "=";
        }
        builder.close();
        return "<";
    }

    private PoolHarness() {}
}
