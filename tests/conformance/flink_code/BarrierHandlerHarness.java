/*
 * Drives Flink's own SingleCheckpointBarrierHandler and CheckpointBarrierTracker (at-least-once) with sequences of
 * events, and prints what they do.
 *
 * One line in, one line out. In: the kind of handler (aligned, alternating, tracker), the number of channels, then events:
 *   t MS          the clock moves on (timers do not fire by themselves)
 *   a C K ...     the announcement of a barrier comes in on channel C; see barrierOf for the rest
 *   b C K ...     a barrier comes in on channel C
 *   x C K         the marker that checkpoint K is cancelled
 *   e C           the end of the channel's partition
 *   f             timers that are due fire
 * Out: for each event its actions, separated by commas; events separated by semicolons; in the order in which they
 * were done, but channels that are resumed together by number.
 */
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.StringTokenizer;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.function.Supplier;
import org.apache.flink.runtime.checkpoint.CheckpointException;
import org.apache.flink.runtime.checkpoint.CheckpointMetaData;
import org.apache.flink.runtime.checkpoint.CheckpointMetricsBuilder;
import org.apache.flink.runtime.checkpoint.CheckpointOptions;
import org.apache.flink.runtime.checkpoint.CheckpointType;
import org.apache.flink.runtime.checkpoint.channel.ChannelStateWriter;
import org.apache.flink.runtime.checkpoint.channel.InputChannelInfo;
import org.apache.flink.runtime.io.network.api.CancelCheckpointMarker;
import org.apache.flink.runtime.io.network.api.CheckpointBarrier;
import org.apache.flink.runtime.io.network.partition.consumer.CheckpointableInput;
import org.apache.flink.runtime.jobgraph.tasks.CheckpointableTask;
import org.apache.flink.runtime.state.CheckpointStorageLocationReference;
import org.apache.flink.runtime.state.CheckpointStorageWorkerView;
import org.apache.flink.streaming.runtime.io.checkpointing.BarrierAlignmentUtil.Cancellable;
import org.apache.flink.streaming.runtime.io.checkpointing.CheckpointBarrierHandler;
import org.apache.flink.streaming.runtime.io.checkpointing.CheckpointBarrierTracker;
import org.apache.flink.streaming.runtime.io.checkpointing.SingleCheckpointBarrierHandler;
import org.apache.flink.streaming.runtime.tasks.OperatorChain;
import org.apache.flink.streaming.runtime.tasks.SubtaskCheckpointCoordinator;
import org.apache.flink.util.clock.Clock;

public final class BarrierHandlerHarness {
    private static final CheckpointStorageLocationReference LOCATION =
            CheckpointStorageLocationReference.getDefault();

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = new PrintStream(System.out, false);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(new Run(line).done());
        }
        out.flush();
    }

    private static final class Timer implements Cancellable {
        final Callable<?> task;
        final long dueMs;
        boolean isOver;

        Timer(Callable<?> task, long dueMs) {
            this.task = task;
            this.dueMs = dueMs;
        }

        @Override
        public void cancel() {
            isOver = true;
        }
    }

    private static final class Run extends Clock {
        private final StringTokenizer words;
        private final List<String> actions = new ArrayList<>();
        private final List<Timer> timers = new ArrayList<>();
        private final CheckpointBarrierHandler handler;
        private long nowMs;

        Run(String line) {
            words = new StringTokenizer(line);
            String kind = words.nextToken();
            int channels = number();
            Input input = new Input(channels);
            handler =
                    kind.equals("tracker")
                            ? new CheckpointBarrierTracker(channels, new Task(), this, true)
                            : kind.equals("aligned")
                            ? SingleCheckpointBarrierHandler.aligned(
                                    "task", new Task(), this, channels, this::register, true, input)
                            : SingleCheckpointBarrierHandler.alternating(
                                    "task", new Task(), new Coordinator(), this, channels, this::register, true, input);
        }

        String done() throws Exception {
            StringBuilder all = new StringBuilder();
            while (words.hasMoreTokens()) {
                try {
                    event(words.nextToken());
                } catch (IllegalStateException failure) {
                    // The tracker's own check of its clock; see barrier_sequences.py, comparable.
                    if (!failure.getMessage().startsWith("Alignment time is less than zero")) {
                        throw failure;
                    }
                    actions.add("failed");
                }
                all.append(String.join(",", ordered())).append(words.hasMoreTokens() ? ";" : "");
                actions.clear();
            }
            return all.toString();
        }

        private void event(String kind) throws Exception {
            switch (kind) {
                case "t":
                    nowMs += number();
                    break;
                case "a":
                    {
                        InputChannelInfo channel = channel();
                        handler.processBarrierAnnouncement(barrierOf(), 0, channel);
                        break;
                    }
                case "b":
                    {
                        InputChannelInfo channel = channel();
                        handler.processBarrier(barrierOf(), channel, false);
                        break;
                    }
                case "x":
                    {
                        InputChannelInfo channel = channel();
                        handler.processCancellationBarrier(new CancelCheckpointMarker(number()), channel);
                        break;
                    }
                case "e":
                    handler.processEndOfPartition(channel());
                    break;
                case "f":
                    for (Timer timer : new ArrayList<>(timers)) {
                        if (!timer.isOver && timer.dueMs <= nowMs) {
                            timer.isOver = true;
                            timer.task.call();
                        }
                    }
                    timers.removeIf(timer -> timer.isOver);
                    break;
                default:
                    throw new IllegalArgumentException(kind);
            }
        }

        /** "K AT u", unaligned; "K AT n", aligned for good; "K AT l", at least once; "K AT MS", aligned with a timeout; v before it: forced. */
        private CheckpointBarrier barrierOf() {
            long id = number();
            long atMs = number();
            String how = words.nextToken();
            return new CheckpointBarrier(id, atMs, options(how));
        }

        private static CheckpointOptions options(String how) {
            CheckpointType type = CheckpointType.CHECKPOINT;
            if (how.startsWith("v")) {
                return options(how.length() == 1 ? "u" : how.substring(1)).withUnalignedUnsupported();
            }
            switch (how) {
                case "u":
                    return CheckpointOptions.unaligned(type, LOCATION);
                case "l":
                    return CheckpointOptions.notExactlyOnce(type, LOCATION);
                case "n":
                    return CheckpointOptions.alignedNoTimeout(type, LOCATION);
                default:
                    return CheckpointOptions.alignedWithTimeout(type, LOCATION, Long.parseLong(how));
            }
        }

        private int number() {
            return Integer.parseInt(words.nextToken());
        }

        private InputChannelInfo channel() {
            return new InputChannelInfo(0, number());
        }

        private Cancellable register(Callable<?> task, Duration delay) {
            Timer timer = new Timer(task, nowMs + delay.toMillis());
            timers.add(timer);
            actions.add("timer " + timer.dueMs);
            return timer;
        }

        /** Resumed channels are a set in Flink; each run of them is put in order. */
        private List<String> ordered() {
            List<String> sorted = new ArrayList<>(actions);
            int begin = 0;
            while (begin < sorted.size()) {
                int end = begin;
                String kind = sorted.get(begin).split(" ")[0];
                while (end < sorted.size() && sorted.get(end).split(" ")[0].equals(kind)) {
                    end++;
                }
                if (kind.equals("resume") || kind.equals("convert")) {
                    sorted.subList(begin, end).sort(null);
                }
                begin = end;
            }
            return sorted;
        }

        @Override
        public long absoluteTimeMillis() {
            return nowMs;
        }

        @Override
        public long relativeTimeMillis() {
            return nowMs;
        }

        @Override
        public long relativeTimeNanos() {
            return nowMs * 1_000_000;
        }

        private final class Input implements CheckpointableInput {
            private final int channels;

            Input(int channels) {
                this.channels = channels;
            }

            @Override
            public void blockConsumption(InputChannelInfo channel) {
                actions.add("block " + channel.getInputChannelIdx());
            }

            @Override
            public void resumeConsumption(InputChannelInfo channel) {
                actions.add("resume " + channel.getInputChannelIdx());
            }

            @Override
            public List<InputChannelInfo> getChannelInfos() {
                List<InputChannelInfo> infos = new ArrayList<>();
                for (int i = 0; i < channels; i++) {
                    infos.add(new InputChannelInfo(0, i));
                }
                return infos;
            }

            @Override
            public int getNumberOfInputChannels() {
                return channels;
            }

            @Override
            public void checkpointStarted(CheckpointBarrier barrier) {
                actions.add("persist " + barrier.getId());
            }

            @Override
            public void checkpointStopped(long id) {
                actions.add("stop " + id);
            }

            @Override
            public int getInputGateIndex() {
                return 0;
            }

            @Override
            public void convertToPriorityEvent(int channel, int sequenceNumber) {
                actions.add("convert " + channel);
            }
        }

        private final class Task implements CheckpointableTask {
            @Override
            public CompletableFuture<Boolean> triggerCheckpointAsync(CheckpointMetaData meta, CheckpointOptions options) {
                throw new UnsupportedOperationException();
            }

            @Override
            public void triggerCheckpointOnBarrier(
                    CheckpointMetaData meta, CheckpointOptions options, CheckpointMetricsBuilder metrics) {
                // What is forwarded and restored is what the options say once unaligned is possible again.
                actions.add(
                        "snapshot " + meta.getCheckpointId() + " " + options.withUnalignedSupported().getAlignment());
            }

            @Override
            public Future<Void> notifyCheckpointCompleteAsync(long id) {
                throw new UnsupportedOperationException();
            }

            @Override
            public Future<Void> notifyCheckpointAbortAsync(long id, long latestCompletedId) {
                throw new UnsupportedOperationException();
            }

            @Override
            public Future<Void> notifyCheckpointSubsumedAsync(long id) {
                throw new UnsupportedOperationException();
            }

            @Override
            public void abortCheckpointOnBarrier(long id, CheckpointException reason) {
                actions.add("abort " + id + " " + reason.getCheckpointFailureReason());
            }
        }

        private static final class Coordinator implements SubtaskCheckpointCoordinator {
            @Override
            public void initInputsCheckpoint(long id, CheckpointOptions options) {}

            @Override
            public ChannelStateWriter getChannelStateWriter() {
                return ChannelStateWriter.NO_OP;
            }

            @Override
            public CheckpointStorageWorkerView getCheckpointStorage() {
                throw new UnsupportedOperationException();
            }

            @Override
            public void abortCheckpointOnBarrier(long id, CheckpointException reason, OperatorChain<?, ?> chain) {
                throw new UnsupportedOperationException();
            }

            @Override
            public void checkpointState(
                    CheckpointMetaData meta,
                    CheckpointOptions options,
                    CheckpointMetricsBuilder metrics,
                    OperatorChain<?, ?> chain,
                    boolean isTaskFinished,
                    Supplier<Boolean> isRunning) {
                throw new UnsupportedOperationException();
            }

            @Override
            public void notifyCheckpointComplete(long id, OperatorChain<?, ?> chain, Supplier<Boolean> isRunning) {}

            @Override
            public void notifyCheckpointAborted(long id, OperatorChain<?, ?> chain, Supplier<Boolean> isRunning) {}

            @Override
            public void notifyCheckpointSubsumed(long id, OperatorChain<?, ?> chain, Supplier<Boolean> isRunning) {}

            @Override
            public void waitForPendingCheckpoints() {}

            @Override
            public void cancel() {}

            @Override
            public void close() {}
        }
    }
}
