/*
 * Drives Flink's own changelog storage: FsStateChangelogStorage with its writer, StateChangeFsUploader,
 * TaskChangelogRegistryImpl, ChangelogTruncateHelper and SharedStateRegistryImpl. The harness calls them as
 * ChangelogKeyedStateBackend and the checkpoint coordinator do.
 *
 * One line in, one line out. The first word is the number of retained checkpoints. Checkpoint 1 of the empty state is
 * complete at the beginning. Checkpoints run one at a time. The other words are steps:
 *   a:BYTES   a change of this size. From 1000 bytes on, the writer uploads at once what it has.
 *   c         the next checkpoint is taken
 *   u:N, x:N  one of the running uploads ends, or fails: number N modulo how many there are, oldest first
 *   n         the pending checkpoint completes, if it is acknowledged
 *   d         the pending checkpoint is aborted
 *   M         a materialization begins, if there is something to materialize and none is running
 *   m, w      it ends (m) or fails (w)
 *   q         the task ends, and then the running uploads end
 *   z         the segments in existing files are named. After q, without the files of checkpoints that were taken but
 *             never acknowledged, some of which Flink leaves behind.
 * The answer has one word for each step, with four parts: the outcome; then, behind slashes, what began to be uploaded,
 * the checkpoint that was acknowledged, and what was deleted. A segment of the log is named by its first and last
 * change. Segments that are materialized before their upload begins are not named, and of deleted files only segments
 * that a checkpoint was acknowledged with. If a change cannot be appended, which fails the task, the answer ends with "failed".
 */
package org.apache.flink.changelog.fs;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.StringJoiner;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Stream;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.operators.MailboxExecutor;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.core.fs.Path;
import org.apache.flink.core.fs.local.LocalFileSystem;
import org.apache.flink.metrics.groups.UnregisteredMetricsGroup;
import org.apache.flink.runtime.state.KeyGroupRange;
import org.apache.flink.runtime.state.LocalRecoveryConfig;
import org.apache.flink.runtime.state.SharedStateRegistryImpl;
import org.apache.flink.runtime.state.SnapshotResult;
import org.apache.flink.runtime.state.StreamStateHandle;
import org.apache.flink.runtime.state.changelog.ChangelogStateHandleStreamImpl;
import org.apache.flink.runtime.state.changelog.SequenceNumber;
import org.apache.flink.runtime.state.changelog.StateChange;
import org.apache.flink.runtime.state.changelog.StateChangelogWriter;
import org.apache.flink.runtime.state.filesystem.FileStateHandle;
import org.apache.flink.util.CloseableIterator;
import org.apache.flink.util.function.ThrowingRunnable;

public final class ChangelogHarness implements StateChangeUploadScheduler {
    private static final long THRESHOLD = 1000;
    private static final int GROUPS = 4;

    private final int retainedMax;
    private final TaskChangelogRegistry files = TaskChangelogRegistry.defaultChangelogRegistry(Runnable::run);
    private final SharedStateRegistryImpl shared = new SharedStateRegistryImpl(Runnable::run);
    private final StateChangeFsUploader uploader;
    private final FsStateChangelogWriter writer;
    private final Object truncating;
    private final List<UploadTask> uploads = new ArrayList<>();
    private final Map<UploadTask, Set<Integer>> named = new HashMap<>();
    private final Map<java.nio.file.Path, Set<Integer>> segments = new LinkedHashMap<>();
    private final Map<java.nio.file.Path, Integer> firstOf = new HashMap<>();
    private final Map<Integer, Integer> lasts = new LinkedHashMap<>();
    private final Set<Integer> acknowledged = new TreeSet<>();
    private final Set<Integer> started = new TreeSet<>();
    private final List<Long> retained = new ArrayList<>();
    private final java.nio.file.Path folder;

    private int appended;
    private long newestId;
    private long pendingId;
    private boolean isAcknowledged;
    private CompletableFuture<SnapshotResult<ChangelogStateHandleStreamImpl>> pending;
    private SequenceNumber from;
    private SequenceNumber to;
    private SequenceNumber materializedTo;
    private SequenceNumber materializing;
    private int materializingAppended;
    private int materializedAppended;
    private int persistedAppended;
    private boolean isClosed;

    private ChangelogHarness(int retainedMax, java.nio.file.Path folder) throws Exception {
        this.retainedMax = retainedMax;
        this.folder = folder;
        uploader = new StateChangeFsUploader(
                new JobID(), new Path(folder.toUri()), LocalFileSystem.getSharedInstance(), false, 4096,
                new ChangelogStorageMetricGroup(new UnregisteredMetricsGroup()), files);
        writer = new FsStateChangelogStorage(
                this, THRESHOLD, files, LocalRecoveryConfig.BACKUP_AND_RECOVERY_DISABLED)
                .createWriter("operator", KeyGroupRange.of(0, GROUPS - 1), new Mailbox());
        Constructor<?> helper = Class.forName("org.apache.flink.state.changelog.ChangelogTruncateHelper")
                .getDeclaredConstructor(StateChangelogWriter.class);
        helper.setAccessible(true);
        truncating = helper.newInstance(writer);
        materializedTo = writer.initialSequenceNumber();
        checkpoint();
        acknowledge();
        complete();
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = new PrintStream(System.out, false);
        java.nio.file.Path all = Files.createTempDirectory("changelog");
        int count = 0;
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            java.nio.file.Path folder = Files.createDirectory(all.resolve("" + count++));
            ChangelogHarness harness = new ChangelogHarness(Integer.parseInt(words[0]), folder);
            StringJoiner answer = new StringJoiner(" ");
            for (int i = 1; i < words.length; i++) {
                String told = harness.told(words[i].split(":"));
                answer.add(told);
                if (told.equals("failed")) {
                    break;
                }
            }
            out.println(answer);
            delete(folder);
        }
        delete(all);
        out.flush();
    }

    private String told(String[] words) throws Exception {
        started.clear();
        Map<java.nio.file.Path, Set<Integer>> before = existing();
        String done = step(words[0], words.length > 1 ? Integer.parseInt(words[1]) : 0);
        if (done.equals("failed")) {
            return done;
        }
        String acknowledgement = acknowledge();
        Set<Integer> deleted = new TreeSet<>();
        for (Map.Entry<java.nio.file.Path, Set<Integer>> file : before.entrySet()) {
            if (!Files.exists(file.getKey())) {
                deleted.addAll(file.getValue());
            }
        }
        deleted.retainAll(acknowledged);
        return done + "/" + text(started) + "/" + acknowledgement + "/" + text(deleted);
    }

    private String step(String what, int number) throws Exception {
        switch (what) {
            case "a":
                return append(number);
            case "c":
                return pendingId == 0 ? checkpoint() : "-";
            case "u":
            case "x":
                if (!uploads.isEmpty()) {
                    end(uploads.remove(number % uploads.size()), what.equals("u"));
                }
                return "-";
            case "n":
                return pendingId != 0 && isAcknowledged ? complete() : "-";
            case "d":
                if (pendingId != 0) {
                    abort();
                }
                return "-";
            case "M":
                return materializing == null ? materialize() : "-";
            case "m":
            case "w":
                if (materializing != null) {
                    materialized(what.equals("m"));
                }
                return "-";
            case "q":
                pendingId = 0;
                isClosed = true;
                writer.truncateAndClose(to);
                while (!uploads.isEmpty()) {
                    end(uploads.remove(0), true);
                }
                return "-";
            default:
                return listed();
        }
    }

    private String append(int size) throws IOException {
        int number = appended++;
        try {
            writer.append(number % GROUPS, ByteBuffer.allocate(size).putInt(number).array());
            return "-";
        } catch (IOException failedBefore) {
            return "failed";
        }
    }

    /** As ChangelogKeyedStateBackend.snapshot. */
    private String checkpoint() throws Exception {
        long id = ++newestId;
        from = materializedTo;
        to = writer.nextSequenceNumber();
        persistedAppended = appended;
        truncate("checkpoint", new Class<?>[] {long.class, SequenceNumber.class}, id, to);
        try {
            pending = writer.persist(from, id);
        } catch (IOException failedBefore) {
            return "refused";
        }
        pendingId = id;
        isAcknowledged = false;
        return "-";
    }

    private String acknowledge() throws Exception {
        if (pendingId == 0 || isAcknowledged || !pending.isDone()) {
            return "";
        }
        if (pending.isCompletedExceptionally()) {
            abort();
            return "declined";
        }
        ChangelogStateHandleStreamImpl handle = pending.get().getJobManagerOwnedSnapshot();
        handle.registerSharedStates(shared, pendingId);
        isAcknowledged = true;
        Set<Integer> firsts = new TreeSet<>();
        for (Tuple2<StreamStateHandle, Long> part : handle.getHandlesAndOffsets()) {
            firsts.add(read(part.f0, part.f1));
        }
        acknowledged.addAll(firsts);
        return text(firsts) + "=" + handle.getStateSize();
    }

    /** Reads a segment back, and returns its first change. */
    private int read(StreamStateHandle file, long offset) throws Exception {
        Set<Integer> numbers = new TreeSet<>();
        StateChangeIteratorImpl reader = new StateChangeIteratorImpl(ChangelogStreamHandleReader.DIRECT_READER);
        try (CloseableIterator<StateChange> changes = reader.read(file, offset)) {
            while (changes.hasNext()) {
                numbers.add(ByteBuffer.wrap(changes.next().getChange()).getInt());
            }
        }
        return first(numbers);
    }

    private int first(Set<Integer> numbers) {
        List<Integer> all = new ArrayList<>(numbers);
        int last = all.get(all.size() - 1);
        if (last - all.get(0) + 1 != all.size()) {
            throw new IllegalStateException(numbers + " are not in a row");
        }
        lasts.put(all.get(0), last);
        return all.get(0);
    }

    /** As the coordinator and ChangelogKeyedStateBackend do it. */
    private String complete() throws Exception {
        long id = pendingId;
        pendingId = 0;
        shared.checkpointCompleted(id);
        retained.add(id);
        List<Long> subsumed = new ArrayList<>();
        while (retained.size() > retainedMax) {
            subsumed.add(retained.remove(0));
        }
        shared.unregisterUnusedState(retained.get(0));
        writer.confirm(from, to, id);
        for (long each : subsumed) {
            truncate("checkpointSubsumed", new Class<?>[] {long.class}, each);
        }
        return "complete";
    }

    private void abort() {
        writer.reset(from, to, pendingId);
        pendingId = 0;
    }

    private String materialize() {
        SequenceNumber upTo = writer.nextSequenceNumber();
        if (upTo.compareTo(materializedTo) <= 0) {
            return "nothing";
        }
        materializing = upTo;
        materializingAppended = appended;
        return "-";
    }

    private void materialized(boolean isDurable) throws Exception {
        if (isDurable) {
            materializedTo = materializing;
            materializedAppended = materializingAppended;
            truncate("materialized", new Class<?>[] {SequenceNumber.class}, materializing);
        }
        materializing = null;
    }

    private void truncate(String what, Class<?>[] types, Object... given) throws Exception {
        Method method = truncating.getClass().getDeclaredMethod(what, types);
        method.setAccessible(true);
        method.invoke(truncating, given);
    }

    private void end(UploadTask task, boolean isDurable) throws IOException {
        if (!isDurable) {
            task.fail(new IOException());
            return;
        }
        StateChangeUploader.UploadTasksResult result = uploader.upload(Collections.singleton(task));
        String path = ((FileStateHandle) result.getStreamStateHandle()).getFilePath().getPath();
        segments.put(java.nio.file.Paths.get(path), named.get(task));
        firstOf.put(java.nio.file.Paths.get(path), Collections.min(firsts(task)));
        result.complete();
    }

    private Set<Integer> firsts(UploadTask task) {
        Set<Integer> firsts = new TreeSet<>();
        for (StateChangeSet set : task.getChangeSets()) {
            Set<Integer> numbers = new TreeSet<>();
            for (StateChange change : set.getChanges()) {
                numbers.add(ByteBuffer.wrap(change.getChange()).getInt());
            }
            firsts.add(first(numbers));
        }
        return firsts;
    }

    private String text(Set<Integer> firsts) {
        StringJoiner names = new StringJoiner(",");
        for (int first : firsts) {
            names.add(first + "-" + lasts.get(first));
        }
        return names.toString();
    }

    private Map<java.nio.file.Path, Set<Integer>> existing() {
        Map<java.nio.file.Path, Set<Integer>> found = new LinkedHashMap<>(segments);
        found.keySet().removeIf(path -> !Files.exists(path));
        return found;
    }

    private String listed() {
        Set<Integer> found = new TreeSet<>();
        existing().forEach((path, file) -> {
            boolean isHandedOver = file.stream().anyMatch(acknowledged::contains);
            if (!isClosed || isHandedOver || firstOf.get(path) >= persistedAppended) {
                found.addAll(file);
            }
        });
        return text(found);
    }

    @Override
    public void upload(UploadTask task) {
        uploads.add(task);
        Set<Integer> firsts = firsts(task);
        firsts.removeIf(first -> first < materializedAppended);
        named.put(task, firsts);
        started.addAll(firsts);
    }

    @Override
    public void close() {}

    private static void delete(java.nio.file.Path folder) throws IOException {
        try (Stream<java.nio.file.Path> found = Files.walk(folder)) {
            found.sorted(Collections.reverseOrder()).forEach(path -> path.toFile().delete());
        }
    }

    private static final class Mailbox implements MailboxExecutor {
        @Override
        public void execute(
                MailOptions options, ThrowingRunnable<? extends Exception> command, String format, Object... given) {
            try {
                command.run();
            } catch (Exception wrong) {
                throw new IllegalStateException(Arrays.toString(given), wrong);
            }
        }

        @Override
        public void yield() {}

        @Override
        public boolean tryYield() {
            return false;
        }

        @Override
        public boolean shouldInterrupt() {
            return false;
        }
    }
}
