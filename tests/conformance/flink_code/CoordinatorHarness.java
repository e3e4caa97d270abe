/*
 * Drives Flink's own CheckpointRequestDecider and CheckpointFailureManager, and prints what they decide.
 *
 * One line in, one line out; of each event its actions, separated by commas; events separated by semicolons.
 *   decider CONCURRENT PAUSE_MS LIMIT, then events:
 *     r KIND N      a request numbered N: s savepoint, f forced savepoint, u a user's checkpoint, p periodic
 *     c             whoever waits may be chosen
 *     t MS          the clock moves on
 *     n COUNT       so many checkpoints are pending from now on
 *     d             a checkpoint has just completed
 *     a             all requests are given up
 *   failures TOLERABLE, then events:
 *     j ID REASON KIND   a checkpoint (c) or savepoint (s) failed at the coordinator
 *     k ID REASON        one failed at a task
 *     y ID               one completed
 *   reasons: NAME|PREFLIGHT|MESSAGE of every reason, separated by tabs
 */
package org.apache.flink.runtime.checkpoint;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.StringTokenizer;
import java.util.function.Consumer;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.runtime.checkpoint.CheckpointCoordinator.CheckpointTriggerRequest;
import org.apache.flink.runtime.executiongraph.ExecutionAttemptID;
import org.apache.flink.util.FlinkRuntimeException;
import org.apache.flink.util.clock.ManualClock;

public final class CoordinatorHarness {
    private static final CheckpointProperties CHECKPOINT =
            CheckpointProperties.forCheckpoint(CheckpointRetentionPolicy.NEVER_RETAIN_AFTER_TERMINATION);

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = new PrintStream(System.out, false);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            StringTokenizer words = new StringTokenizer(line);
            switch (words.nextToken()) {
                case "decider":
                    out.println(new Decider(words).done());
                    break;
                case "failures":
                    out.println(new Failures(words).done());
                    break;
                default:
                    out.println(reasons());
            }
        }
        out.flush();
    }

    private static String reasons() {
        List<String> found = new ArrayList<>();
        for (CheckpointFailureReason reason : CheckpointFailureReason.values()) {
            found.add(reason.name() + "|" + reason.isPreFlight() + "|" + reason.message());
        }
        return String.join("\t", found);
    }

    private abstract static class Run {
        final StringTokenizer words;
        final List<String> actions = new ArrayList<>();

        Run(StringTokenizer words) {
            this.words = words;
        }

        String done() throws Exception {
            StringBuilder all = new StringBuilder();
            while (words.hasMoreTokens()) {
                event(words.nextToken());
                all.append(String.join(",", actions)).append(words.hasMoreTokens() ? ";" : "");
                actions.clear();
            }
            return all.toString();
        }

        abstract void event(String kind) throws Exception;

        int number() {
            return Integer.parseInt(words.nextToken());
        }
    }

    private static final class Decider extends Run {
        private final ManualClock clock = new ManualClock(0);
        private final CheckpointRequestDecider decider;
        private int pending;
        private long completedMs = Long.MIN_VALUE / 2;

        Decider(StringTokenizer words) {
            super(words);
            int concurrent = number();
            long pauseMs = number();
            decider =
                    new CheckpointRequestDecider(
                            concurrent,
                            (nowMs, delayMs) -> actions.add("again " + delayMs),
                            clock,
                            pauseMs,
                            () -> pending,
                            () -> 0,
                            number());
        }

        @Override
        void event(String kind) throws Exception {
            switch (kind) {
                case "r":
                    CheckpointTriggerRequest request = request(words.nextToken(), number());
                    chosen(decider.chooseRequestToExecute(request, false, completedMs));
                    break;
                case "c":
                    chosen(decider.chooseQueuedRequestToExecute(false, completedMs));
                    break;
                case "t":
                    clock.advanceTime(number(), java.util.concurrent.TimeUnit.MILLISECONDS);
                    break;
                case "n":
                    pending = number();
                    break;
                case "d":
                    completedMs = clock.relativeTimeMillis();
                    break;
                default:
                    decider.abortAll(new CheckpointException(CheckpointFailureReason.CHECKPOINT_COORDINATOR_SUSPEND));
            }
        }

        private void chosen(Optional<CheckpointTriggerRequest> request) {
            request.ifPresent(found -> actions.add("start " + found.timestamp));
        }

        /** Requests are told apart, and ordered, by their time: here a number of its own for each. */
        private CheckpointTriggerRequest request(String kind, int number) throws Exception {
            CheckpointProperties properties =
                    kind.equals("s") || kind.equals("f")
                            ? CheckpointProperties.forSavepoint(kind.equals("f"), SavepointFormatType.CANONICAL)
                            : CHECKPOINT;
            CheckpointTriggerRequest request = new CheckpointTriggerRequest(properties, null, kind.equals("p"));
            Field timestamp = CheckpointTriggerRequest.class.getDeclaredField("timestamp");
            timestamp.setAccessible(true);
            timestamp.set(request, (long) number);
            request.getOnCompletionFuture()
                    .whenComplete(
                            (done, failure) ->
                                    actions.add(
                                            "refuse "
                                                    + number
                                                    + " "
                                                    + ((CheckpointException) failure).getCheckpointFailureReason().name()));
            return request;
        }
    }

    private static final class Failures extends Run {
        private final CheckpointFailureManager manager;
        private final Method atTask;

        Failures(StringTokenizer words) throws Exception {
            super(words);
            manager =
                    new CheckpointFailureManager(
                            number(),
                            new CheckpointFailureManager.FailJobCallback() {
                                @Override
                                public void failJob(Throwable cause) {
                                    actions.add("job");
                                }

                                @Override
                                public void failJobDueToTaskFailure(Throwable cause, ExecutionAttemptID task) {
                                    actions.add("job");
                                }
                            });
            atTask =
                    CheckpointFailureManager.class.getDeclaredMethod(
                            "checkFailureAgainstCounter", CheckpointException.class, long.class, Consumer.class);
            atTask.setAccessible(true);
        }

        @Override
        void event(String kind) throws Exception {
            long id = number();
            if (kind.equals("y")) {
                manager.handleCheckpointSuccess(id);
                return;
            }
            CheckpointException failure = new CheckpointException(CheckpointFailureReason.valueOf(words.nextToken()));
            if (kind.equals("k")) {
                Consumer<FlinkRuntimeException> fails = cause -> actions.add("job");
                atTask.invoke(manager, failure, id, fails);
                return;
            }
            CheckpointProperties properties =
                    words.nextToken().equals("s")
                            ? CheckpointProperties.forSavepoint(false, SavepointFormatType.CANONICAL)
                            : CHECKPOINT;
            manager.handleJobLevelCheckpointException(properties, failure, id);
        }
    }
}
