/*
 * Drives Flink's own SharedStateRegistryImpl.
 *
 * One line in, one line out. A line has steps, separated by blanks:
 *   r:KEY:FILE:ID   a checkpoint uses a file under a key
 *   p:KEY:ID        a checkpoint uses the file under a key, named by a placeholder
 *   c:ID            a checkpoint is complete
 *   u:ID            the lowest retained checkpoint is ID
 *   n:ID, m:ID      the job begins from a checkpoint, which it does not claim (n) or claims (m)
 * The answer has one word for each step: the file that the checkpoint must use, "error", or "-"; then, behind a
 * slash, the deleted files.
 */
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.StringJoiner;
import org.apache.flink.api.common.JobID;
import org.apache.flink.runtime.checkpoint.CheckpointProperties;
import org.apache.flink.runtime.checkpoint.CheckpointRetentionPolicy;
import org.apache.flink.runtime.checkpoint.CompletedCheckpoint;
import org.apache.flink.runtime.state.CompletedCheckpointStorageLocation;
import org.apache.flink.runtime.state.PhysicalStateHandleID;
import org.apache.flink.runtime.state.PlaceholderStreamStateHandle;
import org.apache.flink.runtime.state.SharedStateRegistryImpl;
import org.apache.flink.runtime.state.SharedStateRegistryKey;
import org.apache.flink.runtime.state.StreamStateHandle;
import org.apache.flink.runtime.state.memory.ByteStreamStateHandle;

public final class SharedStateHarness {
    private static final List<String> DELETED = new ArrayList<>();

    private static final class File extends ByteStreamStateHandle {
        File(String name) {
            super(name, new byte[0]);
        }

        @Override
        public void discardState() {
            DELETED.add(getHandleName());
        }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = new PrintStream(System.out, false);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            SharedStateRegistryImpl registry = new SharedStateRegistryImpl(Runnable::run);
            StringJoiner answer = new StringJoiner(" ");
            for (String step : line.split(" ")) {
                DELETED.clear();
                String done = step(registry, step.split(":"));
                Collections.sort(DELETED);
                answer.add(done + "/" + String.join(",", DELETED));
            }
            out.println(answer);
        }
        out.flush();
    }

    private static String step(SharedStateRegistryImpl registry, String[] words) throws Exception {
        long id = Long.parseLong(words[words.length - 1]);
        switch (words[0]) {
            case "r":
                return register(registry, words[1], new File(words[2]), id);
            case "p":
                PhysicalStateHandleID none = new PhysicalStateHandleID("");
                return register(registry, words[1], new PlaceholderStreamStateHandle(none, 0, false), id);
            case "c":
                registry.checkpointCompleted(id);
                return "-";
            case "u":
                registry.unregisterUnusedState(id);
                return "-";
            default:
                restored(registry, id, words[0].equals("m") ? "CLAIM" : "NO_CLAIM");
                return "-";
        }
    }

    private static String register(SharedStateRegistryImpl registry, String key, StreamStateHandle file, long id) {
        try {
            StreamStateHandle used = registry.registerReference(new SharedStateRegistryKey(key), file, id, false);
            return ((ByteStreamStateHandle) used).getHandleName();
        } catch (IllegalStateException unknown) {
            return "error";
        }
    }

    /** The enum of the modes has another name in Flink 2. */
    private static void restored(SharedStateRegistryImpl registry, long id, String mode) throws Exception {
        CompletedCheckpointStorageLocation nowhere = (CompletedCheckpointStorageLocation) Proxy.newProxyInstance(
                SharedStateHarness.class.getClassLoader(),
                new Class<?>[] {CompletedCheckpointStorageLocation.class},
                (proxy, method, given) -> method.getName().equals("getMetadataHandle") ? new File("") : null);
        CompletedCheckpoint checkpoint = new CompletedCheckpoint(
                new JobID(), id, 0, 1, Collections.emptyMap(), Collections.emptyList(),
                CheckpointProperties.forCheckpoint(CheckpointRetentionPolicy.NEVER_RETAIN_AFTER_TERMINATION), nowhere, null);
        for (Method method : SharedStateRegistryImpl.class.getMethods()) {
            if (method.getName().equals("registerAllAfterRestored")) {
                for (Object each : method.getParameterTypes()[1].getEnumConstants()) {
                    if (each.toString().startsWith(mode) || ((Enum<?>) each).name().equals(mode)) {
                        method.invoke(registry, checkpoint, each);
                        return;
                    }
                }
            }
        }
        throw new IllegalStateException(mode);
    }
}
