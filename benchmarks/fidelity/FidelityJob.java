package fidelity;

import java.io.IOException;
import java.io.Serializable;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.HashMap;
import java.util.Map;
import java.util.SplittableRandom;
import java.util.concurrent.locks.LockSupport;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.util.ratelimit.RateLimiterStrategy;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.connector.datagen.source.GeneratorFunction;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.co.RichCoMapFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;

/**
 * The job that the reference runtime is compared with: source -> (hash -> stage) x stages. A stage sleeps per record.
 *
 * <p>All stages but the last are hashed by the record's number (an even load), the last by its key (optionally skewed).
 * Subtask 0 of one stage may be a straggler, and all subtasks of one TaskManager may be slow. The first stage may join
 * a second source. A source may have bursts, or read a log that grows while the job restarts. The last stage may keep a
 * value for each key. Compiles unchanged against Flink 1.20 and 2.x. Options are --name value.
 */
public final class FidelityJob {

    private static int scrambled(long number, long salt) {
        long x = number * 0x9E3779B97F4A7C15L + salt * 0xD1B54A32D192ED03L;
        x = (x ^ (x >>> 32)) * 0xBF58476D1CE4E5B9L;
        return (int) ((x ^ (x >>> 29)) & Integer.MAX_VALUE);
    }

    private static final class Records implements GeneratorFunction<Long, Tuple3<Integer, Long, byte[]>> {
        private final int keys;
        private final int bytes;
        private final double hot;
        private final Bursts bursts;
        private final Log log;

        Records(int keys, int bytes, double hot, Bursts bursts, Log log) {
            this.keys = keys;
            this.bytes = bytes;
            this.hot = hot;
            this.bursts = bursts;
            this.log = log;
        }

        @Override
        public Tuple3<Integer, Long, byte[]> map(Long number) {
            if (bursts != null) {
                bursts.await();
            }
            if (log != null) {
                log.await(number);
            }
            boolean isHot = scrambled(number, 1) < hot * Integer.MAX_VALUE;
            return Tuple3.of(isHot ? 0 : scrambled(number, 2) % keys, number, new byte[bytes]);
        }
    }

    /** A log with one partition for each subtask. It grows at a steady rate, also while the job restarts. */
    private static final class Log implements Serializable {
        private static final long serialVersionUID = 1L;
        private final double perMs;
        private final long partitionSize;
        private final long beganMs;

        Log(double perSecond, int partitions, long beganMs) {
            this.perMs = perSecond / partitions / 1000;
            this.partitionSize = Long.MAX_VALUE / partitions;
            this.beganMs = beganMs;
        }

        /** The milliseconds since the record was appended; negative if it will be. */
        double ageMs(long number) {
            return System.currentTimeMillis() - beganMs - number % partitionSize / perMs;
        }

        void await(long number) {
            while (ageMs(number) < 0) {
                LockSupport.parkNanos(1_000_000L);
            }
        }

        static Log of(Map<String, String> given) {
            if (!given.containsKey("log-began-ms")) {
                return null;
            }
            double perSecond = Double.parseDouble(given.get("rate"));
            int partitions = Integer.parseInt(given.get("parallelism"));
            return new Log(perSecond, partitions, Long.parseLong(given.get("log-began-ms")));
        }
    }

    /**
     * The times at which the records of one subtask of a source are due. A source that is late catches up, as one does
     * that reads from a log. In each period, the rate is first the mean rate times a factor, and then lower.
     */
    private static final class Bursts implements Serializable {
        private static final long serialVersionUID = 1L;
        private final double perSecond;
        private final double periodS;
        private final double ratio;
        private final double factor;
        private final boolean isFromStart;
        private transient long beganNs;
        private transient long emitted;

        Bursts(double perSecond, double periodS, double ratio, double factor, boolean isFromStart) {
            this.perSecond = perSecond;
            this.periodS = periodS;
            this.ratio = ratio;
            this.factor = factor;
            this.isFromStart = isFromStart;
        }

        private double due(double seconds) {
            double whole = Math.floor(seconds / periodS);
            double rest = seconds - whole * periodS;
            double burst = Math.min(rest, ratio * periodS);
            double calm = (1 - ratio * factor) / (1 - ratio);
            return perSecond * (whole * periodS + burst * factor + (rest - burst) * calm);
        }

        void await() {
            if (beganNs == 0) {
                beganNs = System.nanoTime();
            }
            // Bursts of all subtasks begin at the same time of the clock, unless the first one begins with the source.
            double offsetS = isFromStart
                    ? 0
                    : (System.currentTimeMillis() - (System.nanoTime() - beganNs) / 1e6) / 1000 % periodS;
            double first = due(offsetS);
            while (due(offsetS + (System.nanoTime() - beganNs) / 1e9) - first < emitted + 1) {
                LockSupport.parkNanos(1_000_000L);
            }
            emitted++;
        }
    }

    private static final class ByNumber implements KeySelector<Tuple3<Integer, Long, byte[]>, Integer> {
        private final int stage;

        ByNumber(int stage) {
            this.stage = stage;
        }

        @Override
        public Integer getKey(Tuple3<Integer, Long, byte[]> record) {
            return scrambled(record.f1, 100 + stage);
        }
    }

    private static final class ByKey implements KeySelector<Tuple3<Integer, Long, byte[]>, Integer> {
        @Override
        public Integer getKey(Tuple3<Integer, Long, byte[]> record) {
            return record.f0;
        }
    }

    /** The time that a stage takes for a record: it sleeps. Excess sleep shortens the next sleeps: the mean is exact. */
    private static final class Cost implements Serializable {
        private static final long serialVersionUID = 1L;
        private static final long SHORTEST_SLEEP_NS = 1_000_000L;
        private final long costNs;
        private final double straggling;
        private final String slowHostFile;
        private final double slowHostFactor;
        private transient long nsOfRecord;
        private transient long owedNs;

        Cost(long costUs, double straggling, Map<String, String> given) {
            this.costNs = costUs * 1000L;
            this.straggling = straggling;
            this.slowHostFile = given.get("slow-host-file");
            this.slowHostFactor = Double.parseDouble(given.getOrDefault("slow-host-factor", "1"));
        }

        void open(int subtask) throws IOException {
            double factor = subtask == 0 ? straggling : 1.0;
            if (slowHostFile != null && isSlowHost()) {
                factor *= slowHostFactor;
            }
            nsOfRecord = (long) (costNs * factor);
        }

        /** The slow host is the process that first writes its id to the file. */
        private boolean isSlowHost() throws IOException {
            String own = Long.toString(ProcessHandle.current().pid());
            Path file = Path.of(slowHostFile);
            Path written = Files.createTempFile(file.getParent(), "slow-host", null);
            Files.writeString(written, own);
            try {
                Files.createLink(file, written);
            } catch (FileAlreadyExistsException e) {
                return Files.readString(file).equals(own);
            } finally {
                Files.delete(written);
            }
            return true;
        }

        void pay() {
            owedNs += nsOfRecord;
            if (owedNs >= SHORTEST_SLEEP_NS) {
                long began = System.nanoTime();
                long slept = 0;
                while (slept < owedNs) {
                    LockSupport.parkNanos(owedNs - slept);
                    slept = System.nanoTime() - began;
                }
                owedNs -= slept;
            }
        }
    }

    /** Sleeps for each record, and keeps a value of random bytes for each key if {@code stateBytes} is not 0. */
    private static final class Stage
            extends RichMapFunction<Tuple3<Integer, Long, byte[]>, Tuple3<Integer, Long, byte[]>> {
        private final Cost cost;
        private final int stateBytes;
        private final Log log;
        private transient ValueState<byte[]> value;
        private transient SplittableRandom random;
        private transient volatile long lagMs;

        Stage(Cost cost, int stateBytes, Log log) {
            this.cost = cost;
            this.stateBytes = stateBytes;
            this.log = log;
        }

        @Override
        public void open(OpenContext context) throws Exception {
            cost.open(getRuntimeContext().getTaskInfo().getIndexOfThisSubtask());
            random = new SplittableRandom(getRuntimeContext().getTaskInfo().getIndexOfThisSubtask());
            if (log != null) {
                getRuntimeContext().getMetricGroup().gauge("lagMs", () -> lagMs);
            }
            if (stateBytes > 0) {
                value = getRuntimeContext().getState(
                        new ValueStateDescriptor<>("value", PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO));
            }
        }

        @Override
        public Tuple3<Integer, Long, byte[]> map(Tuple3<Integer, Long, byte[]> record) throws Exception {
            cost.pay();
            if (log != null) {
                lagMs = (long) log.ageMs(record.f1);
            }
            if (stateBytes > 0) {
                byte[] bytes = new byte[stateBytes];
                random.nextBytes(bytes);
                value.update(bytes);
            }
            return record;
        }
    }

    /** A stage with two inputs. */
    private static final class Join extends RichCoMapFunction<
            Tuple3<Integer, Long, byte[]>, Tuple3<Integer, Long, byte[]>, Tuple3<Integer, Long, byte[]>> {
        private final Cost cost;

        Join(Cost cost) {
            this.cost = cost;
        }

        @Override
        public void open(OpenContext context) throws Exception {
            cost.open(getRuntimeContext().getTaskInfo().getIndexOfThisSubtask());
        }

        @Override
        public Tuple3<Integer, Long, byte[]> map1(Tuple3<Integer, Long, byte[]> record) {
            cost.pay();
            return record;
        }

        @Override
        public Tuple3<Integer, Long, byte[]> map2(Tuple3<Integer, Long, byte[]> record) {
            cost.pay();
            return record;
        }
    }

    private static DataStream<Tuple3<Integer, Long, byte[]>> source(
            StreamExecutionEnvironment env, Map<String, String> given, String name, double rate) {
        TypeInformation<Tuple3<Integer, Long, byte[]>> type =
                Types.TUPLE(Types.INT, Types.LONG, Types.PRIMITIVE_ARRAY(Types.BYTE));
        double burstS = Double.parseDouble(given.getOrDefault("burst-period-s", "0"));
        Bursts bursts = burstS == 0 ? null : new Bursts(
                rate / env.getParallelism(),
                burstS,
                Double.parseDouble(given.get("burst-ratio")),
                Double.parseDouble(given.get("burst-factor")),
                given.containsKey("burst-from-start"));
        Log log = Log.of(given);
        Records records = new Records(
                Integer.parseInt(given.get("keys")),
                Integer.parseInt(given.get("payload-bytes")),
                Double.parseDouble(given.getOrDefault("hot-key-ratio", "0")),
                bursts,
                log);
        RateLimiterStrategy limiter =
                rate > 0 && bursts == null && log == null
                        ? RateLimiterStrategy.perSecond(rate)
                        : RateLimiterStrategy.noOp();
        long count = Long.parseLong(given.getOrDefault("records", Long.toString(Long.MAX_VALUE)));
        return env.fromSource(
                        new DataGeneratorSource<>(records, count, limiter, type),
                        WatermarkStrategy.noWatermarks(), name)
                .returns(type);
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> given = new HashMap<>();
        for (int i = 0; i + 1 < arguments.length; i += 2) {
            given.put(arguments[i].substring(2), arguments[i + 1]);
        }
        int stages = Integer.parseInt(given.get("stages"));
        int stragglerStage = Integer.parseInt(given.getOrDefault("straggler-stage", "0"));
        double straggling = Double.parseDouble(given.getOrDefault("straggler-factor", "1"));
        long costUs = Long.parseLong(given.get("cost-us"));
        long innerCostUs = Long.parseLong(given.getOrDefault("inner-cost-us", "0"));
        double rate = Double.parseDouble(given.getOrDefault("rate", "0"));

        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(settings(given));
        env.setParallelism(Integer.parseInt(given.get("parallelism")));
        double secondRate = Double.parseDouble(given.getOrDefault("second-rate", "0"));
        int stateBytes = Integer.parseInt(given.getOrDefault("state-bytes", "0"));
        DataStream<Tuple3<Integer, Long, byte[]>> stream = source(env, given, "source", rate);
        for (int i = 1; i <= stages; i++) {
            boolean isLast = i == stages;
            Cost cost = new Cost(isLast ? costUs : innerCostUs, i == stragglerStage ? straggling : 1.0, given);
            KeySelector<Tuple3<Integer, Long, byte[]>, Integer> by = isLast ? new ByKey() : new ByNumber(i);
            SingleOutputStreamOperator<Tuple3<Integer, Long, byte[]>> staged;
            if (i == 1 && secondRate > 0) {
                DataStream<Tuple3<Integer, Long, byte[]>> second = source(env, given, "second-source", secondRate);
                staged = stream.keyBy(by).connect(second.keyBy(by)).map(new Join(cost));
            } else {
                staged = stream.keyBy(by).map(new Stage(cost, isLast ? stateBytes : 0, isLast ? Log.of(given) : null));
            }
            if (isLast && given.containsKey("last-parallelism")) {
                staged.setParallelism(Integer.parseInt(given.get("last-parallelism")));
            }
            stream = staged.returns(stream.getType()).name("stage-" + i);
        }
        stream.sinkTo(new DiscardingSink<>()).name("sink").setParallelism(stream.getParallelism());
        env.execute(given.getOrDefault("name", "fidelity"));
    }

    private static Configuration settings(Map<String, String> given) {
        Configuration settings = new Configuration();
        String checkpointing = "execution.checkpointing.";
        settings.setString("execution.runtime-mode", "STREAMING");
        settings.setString(checkpointing + "interval", given.get("interval"));
        settings.setString(checkpointing + "timeout", "10min");
        settings.setString(checkpointing + "tolerable-failed-checkpoints", "1000");
        settings.setString(checkpointing + "unaligned.enabled", given.getOrDefault("unaligned", "false"));
        settings.setString(checkpointing + "aligned-checkpoint-timeout", given.getOrDefault("aligned-timeout", "0ms"));
        settings.setString("state.backend.type", given.getOrDefault("backend", "hashmap"));
        settings.setString("execution.checkpointing.incremental", given.getOrDefault("incremental", "false"));
        given.forEach((name, value) -> {
            if (name.startsWith("conf.")) {
                settings.setString(name.substring("conf.".length()), value);
            }
        });
        if (given.containsKey("checkpoint-dir")) {
            settings.setString(checkpointing + "storage", "filesystem");
            settings.setString(checkpointing + "dir", given.get("checkpoint-dir"));
        }
        return settings;
    }

    private FidelityJob() {}
}
