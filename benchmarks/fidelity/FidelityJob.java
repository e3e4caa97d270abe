package fidelity;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.util.ratelimit.RateLimiterStrategy;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.connector.datagen.source.GeneratorFunction;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;

/**
 * The job that the reference runtime is compared with: source -> (hash -> stage) x stages. A stage sleeps per record.
 *
 * <p>All stages but the last are hashed by the record's number (an even load), the last by its key (optionally skewed).
 * Subtask 0 of one stage may be a straggler. Compiles unchanged against Flink 1.20 and 2.x. Options are --name value.
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

        Records(int keys, int bytes, double hot) {
            this.keys = keys;
            this.bytes = bytes;
            this.hot = hot;
        }

        @Override
        public Tuple3<Integer, Long, byte[]> map(Long number) {
            boolean isHot = scrambled(number, 1) < hot * Integer.MAX_VALUE;
            return Tuple3.of(isHot ? 0 : scrambled(number, 2) % keys, number, new byte[bytes]);
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

    /** Sleeps for each record. Excess sleep shortens the next sleeps, so that the mean is exact. */
    private static final class Stage
            extends RichMapFunction<Tuple3<Integer, Long, byte[]>, Tuple3<Integer, Long, byte[]>> {
        private static final long SHORTEST_SLEEP_NS = 1_000_000L;
        private final long costNs;
        private final double straggling;
        private transient long nsOfRecord;
        private transient long owedNs;

        Stage(long costUs, double straggling) {
            this.costNs = costUs * 1000L;
            this.straggling = straggling;
        }

        @Override
        public void open(OpenContext context) {
            boolean isStraggler = getRuntimeContext().getTaskInfo().getIndexOfThisSubtask() == 0;
            nsOfRecord = isStraggler ? (long) (costNs * straggling) : costNs;
        }

        @Override
        public Tuple3<Integer, Long, byte[]> map(Tuple3<Integer, Long, byte[]> record) {
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
            return record;
        }
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
        TypeInformation<Tuple3<Integer, Long, byte[]>> type =
                Types.TUPLE(Types.INT, Types.LONG, Types.PRIMITIVE_ARRAY(Types.BYTE));
        Records records = new Records(
                Integer.parseInt(given.get("keys")),
                Integer.parseInt(given.get("payload-bytes")),
                Double.parseDouble(given.getOrDefault("hot-key-ratio", "0")));
        RateLimiterStrategy limiter = rate > 0 ? RateLimiterStrategy.perSecond(rate) : RateLimiterStrategy.noOp();
        DataStream<Tuple3<Integer, Long, byte[]>> stream = env.fromSource(
                        new DataGeneratorSource<>(records, Long.MAX_VALUE, limiter, type),
                        WatermarkStrategy.noWatermarks(), "source")
                .returns(type);
        for (int i = 1; i <= stages; i++) {
            stream = stream.keyBy(i < stages ? new ByNumber(i) : new ByKey())
                    .map(new Stage(i < stages ? innerCostUs : costUs, i == stragglerStage ? straggling : 1.0))
                    .returns(type)
                    .name("stage-" + i);
        }
        stream.sinkTo(new DiscardingSink<>()).name("sink");
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
        settings.setString("state.backend.type", "hashmap");
        if (given.containsKey("checkpoint-dir")) {
            settings.setString(checkpointing + "storage", "filesystem");
            settings.setString(checkpointing + "dir", given.get("checkpoint-dir"));
        }
        return settings;
    }

    private FidelityJob() {}
}
