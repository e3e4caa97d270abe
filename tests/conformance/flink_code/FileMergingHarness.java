/*
 * Drives Flink's own file merging managers: WithinCheckpointFileMergingSnapshotManager and
 * AcrossCheckpointFileMergingSnapshotManager.
 *
 * One line in, one line out. The first word is the kind of manager (w or a) and the size in bytes at which a file is
 * full. The other words are steps:
 *   b:N:SUBTASK:ID:SCOPE  write number N begins, for a checkpoint; the scope is x (exclusive) or s (shared)
 *   e:N:BYTES             it ends with this size
 *   f:N                   it fails
 *   u:N:ID                a checkpoint uses what was written by write N
 *   c:SUBTASK:ID, a:SUBTASK:ID, s:SUBTASK:ID   a subtask is told that a checkpoint is complete, aborted or subsumed
 * The answer has one word for each step: the number of the file that is written to, "y" or "n" for a use, or "-"; then,
 * behind a slash, the numbers of the files that the step deleted. Files are numbered as they are created.
 */
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import java.util.stream.Stream;
import org.apache.flink.api.common.JobID;
import org.apache.flink.core.fs.Path;
import org.apache.flink.core.fs.local.LocalFileSystem;
import org.apache.flink.runtime.checkpoint.filemerging.FileMergingSnapshotManager;
import org.apache.flink.runtime.checkpoint.filemerging.FileMergingSnapshotManager.SubtaskKey;
import org.apache.flink.runtime.checkpoint.filemerging.FileMergingSnapshotManagerBuilder;
import org.apache.flink.runtime.checkpoint.filemerging.FileMergingType;
import org.apache.flink.runtime.checkpoint.filemerging.PhysicalFilePool;
import org.apache.flink.runtime.clusterframework.types.ResourceID;
import org.apache.flink.runtime.state.CheckpointedStateScope;
import org.apache.flink.runtime.state.filemerging.SegmentFileStateHandle;
import org.apache.flink.runtime.state.filesystem.FileMergingCheckpointStateOutputStream;

public final class FileMergingHarness {
    private static final int SUBTASKS = 3;

    private final FileMergingSnapshotManager manager;
    private final List<SubtaskKey> subtasks = new ArrayList<>();
    private final Map<String, FileMergingCheckpointStateOutputStream> streams = new HashMap<>();
    private final Map<String, SegmentFileStateHandle> handles = new HashMap<>();
    private final List<Path> files = new ArrayList<>();
    private final List<Boolean> exist = new ArrayList<>();

    private FileMergingHarness(String kind, java.nio.file.Path folder) throws IOException {
        FileMergingType type = kind.charAt(0) == 'a'
                ? FileMergingType.MERGE_ACROSS_CHECKPOINT : FileMergingType.MERGE_WITHIN_CHECKPOINT;
        manager = new FileMergingSnapshotManagerBuilder(new JobID(), ResourceID.generate(), type)
                .setMaxFileSize(Long.parseLong(kind.substring(1)))
                .setFilePoolType(PhysicalFilePool.Type.NON_BLOCKING)
                .setMaxSpaceAmplification(Float.MAX_VALUE)
                .build();
        Path base = new Path(folder.toUri());
        // A buffer of one byte: a stream takes its file as soon as something is written.
        manager.initFileSystem(LocalFileSystem.getSharedInstance(), base, new Path(base, "shared"), new Path(base, "owned"), 1);
        for (int i = 0; i < SUBTASKS; i++) {
            SubtaskKey key = new SubtaskKey("job", "vertex", i, SUBTASKS);
            manager.registerSubtaskForSharedStates(key);
            subtasks.add(key);
        }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = new PrintStream(System.out, false);
        java.nio.file.Path all = Files.createTempDirectory("merging");
        int count = 0;
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            java.nio.file.Path folder = Files.createDirectory(all.resolve("" + count++));
            FileMergingHarness harness = new FileMergingHarness(words[0], folder);
            StringJoiner answer = new StringJoiner(" ");
            for (int i = 1; i < words.length; i++) {
                String done = harness.step(words[i].split(":"));
                answer.add(done + "/" + harness.deleted());
            }
            out.println(answer);
            harness.manager.close();
            delete(folder);
        }
        delete(all);
        out.flush();
    }

    private String step(String[] words) throws Exception {
        switch (words[0]) {
            case "b":
                return begin(words[1], subtasks.get(Integer.parseInt(words[2])), Long.parseLong(words[3]), words[4]);
            case "e":
                FileMergingCheckpointStateOutputStream stream = streams.remove(words[1]);
                stream.write(new byte[Integer.parseInt(words[2]) - 1], 0, Integer.parseInt(words[2]) - 1);
                handles.put(words[1], stream.closeAndGetHandle());
                return "-";
            case "f":
                streams.remove(words[1]).close();
                return "-";
            case "u":
                SegmentFileStateHandle handle = handles.get(words[1]);
                if (!manager.couldReusePreviousStateHandle(handle)) {
                    return "n";
                }
                manager.reusePreviousStateHandle(Long.parseLong(words[2]), Collections.singletonList(handle));
                return "y";
            default:
                tell(words[0], subtasks.get(Integer.parseInt(words[1])), Long.parseLong(words[2]));
                return "-";
        }
    }

    private String begin(String number, SubtaskKey subtask, long id, String scope) throws IOException {
        FileMergingCheckpointStateOutputStream stream = manager.createCheckpointStateOutputStream(
                subtask, id, scope.equals("s") ? CheckpointedStateScope.SHARED : CheckpointedStateScope.EXCLUSIVE);
        stream.write(0);
        stream.flushToFile();
        streams.put(number, stream);
        Path file = stream.getFilePath();
        if (!files.contains(file)) {
            files.add(file);
            exist.add(true);
        }
        return "" + files.indexOf(file);
    }

    private void tell(String what, SubtaskKey subtask, long id) throws Exception {
        if (what.equals("c")) {
            manager.notifyCheckpointComplete(subtask, id);
        } else if (what.equals("a")) {
            manager.notifyCheckpointAborted(subtask, id);
        } else {
            manager.notifyCheckpointSubsumed(subtask, id);
        }
    }

    private String deleted() throws IOException {
        StringJoiner gone = new StringJoiner(",");
        for (int i = 0; i < files.size(); i++) {
            boolean exists = Files.exists(Paths.get(files.get(i).getPath()));
            if (exist.get(i) && !exists) {
                gone.add("" + i);
            }
            exist.set(i, exists);
        }
        return gone.toString();
    }

    private static void delete(java.nio.file.Path folder) throws IOException {
        try (Stream<java.nio.file.Path> found = Files.walk(folder)) {
            found.sorted(Collections.reverseOrder()).forEach(path -> path.toFile().delete());
        }
    }
}
