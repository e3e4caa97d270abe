/*
 * Asks Flink's own DefaultCheckpointPlanCalculator for the plan of a checkpoint, and its plan for the finished operators.
 *
 * One line in, one line out. A line has six words:
 *   PARALLELISM,...             of each vertex, in the order of the graph
 *   FROM-TO:PATTERN,...         edges by the numbers of vertices, a (all to all) or p (pointwise); "-" for none
 *   MODES                       a letter for each vertex, the mode of its operator state: u (union) or s (split)
 *   STATES,...                  for each vertex a letter per subtask: R (running), F (finished) or I (not running yet)
 *   REPORTS,...                 likewise, what its acknowledgement says: o (operators finished), r (finished on
 *                               restore), - (neither); only of running subtasks
 *   ALLOWED                     1 if checkpoints are allowed after tasks have finished, else 0
 * The answer has, separated by semicolons: the triggered subtasks, those that are waited for, those that are committed
 * to, those that have finished (VERTEX.SUBTASK, in order) and the numbers of the fully finished vertices; then "refused"
 * or, for each vertex, what the completed checkpoint holds: "all" if it is fully finished, else a letter per subtask,
 * F (finished) or s (has state). If there is no plan, the answer is "error".
 */
package org.apache.flink.runtime.checkpoint;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import org.apache.flink.api.common.JobID;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.concurrent.ComponentMainThreadExecutor;
import org.apache.flink.runtime.execution.ExecutionState;
import org.apache.flink.runtime.executiongraph.DefaultExecutionGraph;
import org.apache.flink.runtime.executiongraph.DefaultExecutionGraphBuilder;
import org.apache.flink.runtime.executiongraph.Execution;
import org.apache.flink.runtime.executiongraph.ExecutionGraphCheckpointPlanCalculatorContext;
import org.apache.flink.runtime.executiongraph.ExecutionJobVertex;
import org.apache.flink.runtime.executiongraph.ExecutionVertex;
import org.apache.flink.runtime.io.network.partition.ResultPartitionType;
import org.apache.flink.runtime.jobgraph.DistributionPattern;
import org.apache.flink.runtime.jobgraph.IntermediateDataSetID;
import org.apache.flink.runtime.jobgraph.JobGraph;
import org.apache.flink.runtime.jobgraph.JobVertex;
import org.apache.flink.runtime.jobgraph.JobVertexID;
import org.apache.flink.runtime.jobgraph.OperatorID;
import org.apache.flink.runtime.scheduler.SchedulerBase;
import org.apache.flink.runtime.state.OperatorStateHandle;
import org.apache.flink.runtime.state.OperatorStreamStateHandle;
import org.apache.flink.runtime.state.memory.ByteStreamStateHandle;
import org.apache.flink.streaming.runtime.tasks.OneInputStreamTask;

public final class PlanHarness {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = new PrintStream(System.out, false);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(new PlanHarness(line.split(" ")).answer());
        }
        out.flush();
    }

    private final List<JobVertex> vertices = new ArrayList<>();
    private final Map<JobVertexID, Integer> numbers = new HashMap<>();
    private final String modes;
    private final String[] states;
    private final String[] reports;
    private final boolean isAllowed;
    private final DefaultExecutionGraph graph;

    private PlanHarness(String[] words) throws Exception {
        for (String parallelism : words[0].split(",")) {
            JobVertex vertex = new JobVertex("v" + vertices.size());
            vertex.setParallelism(Integer.parseInt(parallelism));
            vertex.setInvokableClass(OneInputStreamTask.class);
            numbers.put(vertex.getID(), vertices.size());
            vertices.add(vertex);
        }
        for (String edge : words[1].equals("-") ? new String[0] : words[1].split(",")) {
            String[] parts = edge.split("[-:]");
            connect(number(parts[0]), number(parts[1]), parts[2].equals("p"));
        }
        modes = words[2];
        states = words[3].split(",");
        reports = words[4].split(",");
        isAllowed = words[5].equals("1");
        graph = graph();
    }

    private static int number(String word) {
        return Integer.parseInt(word);
    }

    /** The parameters of this method differ between versions. */
    private void connect(int from, int to, boolean isPointwise) throws Exception {
        DistributionPattern pattern = isPointwise ? DistributionPattern.POINTWISE : DistributionPattern.ALL_TO_ALL;
        for (Method method : JobVertex.class.getMethods()) {
            Class<?>[] types = method.getParameterTypes();
            if (method.getName().equals("connectNewDataSetAsInput") && types.length > 4 && types.length < 7) {
                Object[] given = new Object[types.length];
                for (int n = 0; n < types.length; n++) {
                    given[n] = types[n] == JobVertex.class ? vertices.get(from)
                            : types[n] == DistributionPattern.class ? pattern
                            : types[n] == ResultPartitionType.class ? ResultPartitionType.PIPELINED_BOUNDED
                            : types[n] == IntermediateDataSetID.class ? new IntermediateDataSetID() : (Object) false;
                }
                method.invoke(vertices.get(to), given);
                return;
            }
        }
        throw new IllegalStateException("no connectNewDataSetAsInput");
    }

    private String answer() throws Exception {
        List<ExecutionJobVertex> topological = new ArrayList<>();
        graph.getVerticesTopologically().forEach(topological::add);
        DefaultCheckpointPlanCalculator calculator = new DefaultCheckpointPlanCalculator(
                graph.getJobID(), new ExecutionGraphCheckpointPlanCalculatorContext(graph), topological, isAllowed);
        for (ExecutionJobVertex vertex : topological) {
            set(vertex);
        }
        CheckpointPlan plan;
        try {
            plan = calculator.calculateCheckpointPlan().get();
        } catch (ExecutionException refused) {
            for (Throwable cause = refused; cause != null; cause = cause.getCause()) {
                if (cause instanceof CheckpointException) {
                    return "error";
                }
            }
            throw refused;
        }
        TreeSet<String> committed = new TreeSet<>();
        plan.getTasksToCommitTo().forEach(vertex -> committed.add(name(vertex)));
        TreeSet<String> full = new TreeSet<>();
        plan.getFullyFinishedJobVertex().forEach(vertex -> full.add("" + numbers.get(vertex.getJobVertexId())));
        return String.join(";", names(plan.getTasksToTrigger()), names(plan.getTasksToWaitFor()),
                String.join(",", committed), names(plan.getFinishedTasks()), String.join(",", full), held(plan));
    }

    private String name(ExecutionVertex vertex) {
        return numbers.get(vertex.getJobvertexId()) + "." + vertex.getParallelSubtaskIndex();
    }

    private String names(List<Execution> executions) {
        TreeSet<String> found = new TreeSet<>();
        executions.forEach(execution -> found.add(name(execution.getVertex())));
        return String.join(",", found);
    }

    private void set(ExecutionJobVertex vertex) throws Exception {
        String mine = states[numbers.get(vertex.getJobVertexId())];
        Field state = Execution.class.getDeclaredField("state");
        state.setAccessible(true);
        int finished = 0;
        for (ExecutionVertex subtask : vertex.getTaskVertices()) {
            char is = mine.charAt(subtask.getParallelSubtaskIndex());
            finished += is == 'F' ? 1 : 0;
            state.set(subtask.getCurrentExecutionAttempt(), is == 'F' ? ExecutionState.FINISHED
                    : is == 'R' ? ExecutionState.RUNNING : ExecutionState.INITIALIZING);
        }
        Field count = ExecutionJobVertex.class.getDeclaredField("numExecutionVertexFinished");
        count.setAccessible(true);
        count.set(vertex, finished);
    }

    /** Passes the acknowledgements to the plan as PendingCheckpoint does, and tells what the checkpoint then holds. */
    private String held(CheckpointPlan plan) throws Exception {
        Map<OperatorID, OperatorState> held = new LinkedHashMap<>();
        for (Execution execution : plan.getTasksToWaitFor()) {
            ExecutionVertex vertex = execution.getVertex();
            int number = numbers.get(vertex.getJobvertexId()), subtask = vertex.getParallelSubtaskIndex();
            char report = reports[number].charAt(subtask);
            if (report == 'r') {
                plan.reportTaskFinishedOnRestore(vertex);
                continue;
            }
            if (report == 'o') {
                plan.reportTaskHasFinishedOperators(vertex);
            }
            OperatorID id = operator(vertex.getJobVertex());
            OperatorState state = held.get(id);
            if (state == null) {
                state = operatorState(id, vertex.getJobVertex().getParallelism());
                held.put(id, state);
            }
            state.putState(subtask, OperatorSubtaskState.builder().setManagedOperatorState(entries(modes.charAt(number))).build());
        }
        try {
            plan.fulfillFinishedTaskStatus(held);
        } catch (FinishedTaskStateProvider.PartialFinishingNotSupportedByStateException refused) {
            return "refused";
        }
        StringJoiner answer = new StringJoiner(",");
        for (JobVertex vertex : vertices) {
            ExecutionJobVertex of = graph.getJobVertex(vertex.getID());
            OperatorState state = held.get(operator(of));
            if (state != null && state.isFullyFinished()) {
                answer.add("all");
                continue;
            }
            StringBuilder subtasks = new StringBuilder();
            for (int n = 0; n < of.getParallelism(); n++) {
                OperatorSubtaskState own = state == null ? null : state.getState(n);
                subtasks.append(own == null ? '-' : own.isFinished() ? 'F' : 's');
            }
            answer.add(subtasks);
        }
        return answer.toString();
    }

    private static OperatorID operator(ExecutionJobVertex vertex) {
        return vertex.getOperatorIDs().get(0).getGeneratedOperatorID();
    }

    /** The constructor has two more parameters in Flink 2. */
    private static OperatorState operatorState(OperatorID id, int parallelism) throws Exception {
        Constructor<?> constructor = OperatorState.class.getConstructors()[0];
        return (OperatorState) (constructor.getParameterCount() == 3
                ? constructor.newInstance(id, parallelism, 128)
                : constructor.newInstance(null, null, id, parallelism, 128));
    }

    private static OperatorStateHandle entries(char mode) {
        OperatorStateHandle.Mode of = mode == 'u' ? OperatorStateHandle.Mode.UNION : OperatorStateHandle.Mode.SPLIT_DISTRIBUTE;
        return new OperatorStreamStateHandle(
                Collections.singletonMap("state", new OperatorStateHandle.StateMetaInfo(new long[] {0}, of)),
                new ByteStreamStateHandle("state", new byte[1]));
    }

    /** Builds the execution graph. The parameters of the builder differ between versions, so they are found by type. */
    private DefaultExecutionGraph graph() throws Exception {
        JobGraph job = new JobGraph(new JobID(), "plan", vertices.toArray(new JobVertex[0]));
        for (Method method : DefaultExecutionGraphBuilder.class.getMethods()) {
            if (!method.getName().equals("buildGraph")) {
                continue;
            }
            Class<?>[] types = method.getParameterTypes();
            Object[] given = new Object[types.length];
            for (int n = 0; n < types.length; n++) {
                given[n] = given(types[n], job);
            }
            DefaultExecutionGraph built = (DefaultExecutionGraph) method.invoke(null, given);
            built.start((ComponentMainThreadExecutor) proxy(ComponentMainThreadExecutor.class));
            return built;
        }
        throw new IllegalStateException("no buildGraph");
    }

    private static Object given(Class<?> type, JobGraph job) throws Exception {
        switch (type.getSimpleName()) {
            case "JobGraph":
                return job;
            case "Configuration":
                return new Configuration();
            case "ClassLoader":
                return PlanHarness.class.getClassLoader();
            case "VertexParallelismStore":
                return SchedulerBase.computeVertexParallelismStore(job);
            case "VertexAttemptNumberStore":
                return Class.forName("org.apache.flink.runtime.executiongraph.DefaultVertexAttemptNumberStore")
                        .getConstructor().newInstance();
            case "Duration":
                return Duration.ofSeconds(1);
            case "Time":
                return type.getMethod("seconds", long.class).invoke(null, 1L);
            case "TaskDeploymentDescriptorFactory$PartitionLocationConstraint":
            case "PartitionLocationConstraint":
                return type.getEnumConstants()[0];
            case "Factory":
                return new ExecutionJobVertex.Factory();
            case "JobManagerJobMetricGroup":
                return Class.forName("org.apache.flink.runtime.metrics.groups.UnregisteredMetricGroups")
                        .getMethod("createUnregisteredJobManagerJobMetricGroup").invoke(null);
            case "ExecutionPlanSchedulingContext":
                return Class.forName("org.apache.flink.runtime.scheduler.adaptivebatch.NonAdaptiveExecutionPlanSchedulingContext")
                        .getField("INSTANCE").get(null);
            case "CheckpointsCleaner":
                return new CheckpointsCleaner();
            case "Logger":
                return org.slf4j.LoggerFactory.getLogger("plan");
            default:
                return type == long.class ? (Object) 0L : type == boolean.class ? (Object) false : proxy(type);
        }
    }

    /** Returns an object that does nothing, but runs what it is given to run. */
    private static Object proxy(Class<?> type) {
        return Proxy.newProxyInstance(type.getClassLoader() == null ? PlanHarness.class.getClassLoader() : type.getClassLoader(),
                new Class<?>[] {type}, (self, method, given) -> {
                    if (method.getName().equals("execute")) {
                        ((Runnable) given[0]).run();
                    }
                    Class<?> returns = method.getReturnType();
                    return returns == int.class ? (Object) Integer.MAX_VALUE
                            : returns == long.class ? (Object) 0L : returns == boolean.class ? (Object) false : null;
                });
    }
}
