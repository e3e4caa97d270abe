/*
 * Asks Flink's own classes who takes up whose state when the parallelism changes.
 *
 * One line in, one line out.
 *   mapper NAME OLD NEW
 *       for each new subtask the old ones (joined by commas, "-" for none), then the ambiguous old ones or "-"
 *   partitioner NAME
 *       the mappers of its receivers and of its senders
 *   operator OLD NEW SPLIT ... UNION ... BROADCAST ...
 *       entries that each old subtask has of a state of each mode; for each new subtask and mode the entries it gets, as
 *       SUBTASK.ENTRY, sorted
 */
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import java.util.StringTokenizer;
import java.util.TreeSet;
import org.apache.flink.runtime.checkpoint.RescaleMappings;
import org.apache.flink.runtime.checkpoint.RoundRobinOperatorStateRepartitioner;
import org.apache.flink.runtime.io.network.api.writer.SubtaskStateMapper;
import org.apache.flink.runtime.state.OperatorStateHandle;
import org.apache.flink.runtime.state.OperatorStreamStateHandle;
import org.apache.flink.runtime.state.memory.ByteStreamStateHandle;
import org.apache.flink.streaming.runtime.partitioner.BroadcastPartitioner;
import org.apache.flink.streaming.runtime.partitioner.ForwardPartitioner;
import org.apache.flink.streaming.runtime.partitioner.GlobalPartitioner;
import org.apache.flink.streaming.runtime.partitioner.KeyGroupStreamPartitioner;
import org.apache.flink.streaming.runtime.partitioner.RebalancePartitioner;
import org.apache.flink.streaming.runtime.partitioner.RescalePartitioner;
import org.apache.flink.streaming.runtime.partitioner.ShufflePartitioner;
import org.apache.flink.streaming.runtime.partitioner.StreamPartitioner;

public final class RescaleHarness {
    private static final String[] NAMES = {"split", "union", "broadcast"};
    private static final OperatorStateHandle.Mode[] MODES = {
        OperatorStateHandle.Mode.SPLIT_DISTRIBUTE,
        OperatorStateHandle.Mode.UNION,
        OperatorStateHandle.Mode.BROADCAST
    };

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = new PrintStream(System.out, false);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(answer(new StringTokenizer(line)));
        }
        out.flush();
    }

    private static String answer(StringTokenizer words) {
        switch (words.nextToken()) {
            case "mapper":
                return mapper(SubtaskStateMapper.valueOf(words.nextToken()), number(words), number(words));
            case "partitioner":
                StreamPartitioner<?> partitioner = partitioner(words.nextToken());
                return partitioner.getDownstreamSubtaskStateMapper()
                        + " "
                        + partitioner.getUpstreamSubtaskStateMapper();
            default:
                return operator(number(words), number(words), words);
        }
    }

    private static String mapper(SubtaskStateMapper mapper, int oldCount, int newCount) {
        RescaleMappings mappings;
        try {
            mappings = mapper.getNewToOldSubtasksMapping(oldCount, newCount);
        } catch (UnsupportedOperationException unsupported) {
            return "unsupported";
        }
        StringJoiner all = new StringJoiner(" ");
        for (int subtask = 0; subtask < newCount; subtask++) {
            all.add(joined(mappings.getMappedIndexes(subtask)));
        }
        all.add(joined(mappings.getAmbiguousTargets().stream().sorted().mapToInt(Integer::intValue).toArray()));
        return all.toString();
    }

    private static String joined(int[] numbers) {
        if (numbers.length == 0) {
            return "-";
        }
        StringJoiner all = new StringJoiner(",");
        for (int number : numbers) {
            all.add(String.valueOf(number));
        }
        return all.toString();
    }

    private static StreamPartitioner<?> partitioner(String name) {
        switch (name) {
            case "hash":
                return new KeyGroupStreamPartitioner<Object, Object>(value -> value, 128);
            case "rebalance":
                return new RebalancePartitioner<>();
            case "shuffle":
                return new ShufflePartitioner<>();
            case "global":
                return new GlobalPartitioner<>();
            case "forward":
                return new ForwardPartitioner<>();
            case "rescale":
                return new RescalePartitioner<>();
            default:
                return new BroadcastPartitioner<>();
        }
    }

    private static String operator(int oldCount, int newCount, StringTokenizer words) {
        List<Map<String, OperatorStateHandle.StateMetaInfo>> states = new ArrayList<>();
        for (int subtask = 0; subtask < oldCount; subtask++) {
            states.add(new HashMap<>());
        }
        for (int state = 0; state < NAMES.length; state++) {
            for (int subtask = 0; subtask < oldCount; subtask++) {
                long[] offsets = new long[number(words)];
                for (int entry = 0; entry < offsets.length; entry++) {
                    offsets[entry] = entry;
                }
                if (offsets.length > 0) {
                    states.get(subtask)
                            .put(NAMES[state], new OperatorStateHandle.StateMetaInfo(offsets, MODES[state]));
                }
            }
        }
        List<List<OperatorStateHandle>> before = new ArrayList<>();
        for (int subtask = 0; subtask < oldCount; subtask++) {
            ByteStreamStateHandle bytes = new ByteStreamStateHandle(String.valueOf(subtask), new byte[] {0});
            List<OperatorStateHandle> handles = new ArrayList<>();
            handles.add(new OperatorStreamStateHandle(states.get(subtask), bytes));
            before.add(handles);
        }
        StringJoiner all = new StringJoiner(" ");
        for (List<OperatorStateHandle> handles :
                RoundRobinOperatorStateRepartitioner.INSTANCE.repartitionState(before, oldCount, newCount)) {
            for (String name : NAMES) {
                all.add(entries(handles, name));
            }
        }
        return all.toString();
    }

    private static String entries(List<OperatorStateHandle> handles, String name) {
        TreeSet<String> found = new TreeSet<>();
        for (OperatorStateHandle handle : handles) {
            OperatorStateHandle.StateMetaInfo info = handle.getStateNameToPartitionOffsets().get(name);
            String subtask = ((ByteStreamStateHandle) handle.getDelegateStateHandle()).getHandleName();
            for (long offset : info == null ? new long[0] : info.getOffsets()) {
                found.add(subtask + "." + offset);
            }
        }
        return found.isEmpty() ? "-" : String.join(",", found);
    }

    private static int number(StringTokenizer words) {
        return Integer.parseInt(words.nextToken());
    }
}
