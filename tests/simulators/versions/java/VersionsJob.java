package versions;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.FlatMapFunction;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.Boundedness;
import org.apache.flink.api.connector.source.ReaderOutput;
import org.apache.flink.api.connector.source.Source;
import org.apache.flink.api.connector.source.SourceReader;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.api.connector.source.SplitEnumerator;
import org.apache.flink.api.connector.source.SplitEnumeratorContext;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource.NumberSequenceSplit;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.io.InputStatus;
import org.apache.flink.core.io.SimpleVersionedSerializer;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.co.KeyedBroadcastProcessFunction;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.functions.ScalarFunction;
import org.apache.flink.util.Collector;

/**
 * The jobs of {@code make test-versions}. Compiles unchanged against every Flink from 1.13 to 2.3, so it uses only what
 * all of them have: no {@code open}, no sink (a last operator that emits nothing), settings by their keys.
 *
 * <p>{@code --set key=value} is a setting of the job. With {@code --statement SQL} the job is SQL. Otherwise
 * {@code --shape} is keyed, broadcast or many.
 */
public final class VersionsJob {

    /** Waits this many microseconds for each record. A wait is no load on the processor. */
    static final class Cost implements Serializable {
        private final long nanos;
        private transient long owed;

        Cost(long micros) { nanos = micros * 1000; }

        void pay() {
            owed += nanos;
            if (owed < 1_000_000L) return; // short waits are inexact, so they are added up to a millisecond
            long start = System.nanoTime(), now = start;
            while (owed > now - start) {
                LockSupport.parkNanos(owed - (now - start));
                if (Thread.interrupted()) throw new RuntimeException("cancelled");
                now = System.nanoTime();
            }
            owed -= now - start;
        }
    }

    /** SLOW(micros, value): the value, after a wait. */
    public static final class Slow extends ScalarFunction {
        private transient Cost cost;

        public Long eval(Integer micros, Long value) {
            if (cost == null) cost = new Cost(micros);
            cost.pay();
            return value;
        }
    }

    /** Numbers from 0 on, so many a second in each subtask. After `limit` of them it ends, or stays open and idle. */
    static final class Paced implements Source<Long, NumberSequenceSplit, Collection<NumberSequenceSplit>> {
        private final NumberSequenceSource numbers;
        private final double perSecond;
        private final long idleAfter;
        private final boolean ends;

        Paced(long limit, double perSecond, boolean ends, int parallelism) {
            this.numbers = new NumberSequenceSource(0, ends ? limit - 1 : Long.MAX_VALUE - 1);
            this.perSecond = perSecond / parallelism;
            this.idleAfter = ends || limit == 0 ? Long.MAX_VALUE : limit / parallelism;
            this.ends = ends;
        }

        @Override public Boundedness getBoundedness() {
            return ends ? Boundedness.BOUNDED : Boundedness.CONTINUOUS_UNBOUNDED;
        }
        @Override public SourceReader<Long, NumberSequenceSplit> createReader(SourceReaderContext c) {
            return new PacedReader(numbers.createReader(c), perSecond, idleAfter);
        }
        @Override public SplitEnumerator<NumberSequenceSplit, Collection<NumberSequenceSplit>> createEnumerator(
                SplitEnumeratorContext<NumberSequenceSplit> c) {
            return numbers.createEnumerator(c);
        }
        @Override public SplitEnumerator<NumberSequenceSplit, Collection<NumberSequenceSplit>> restoreEnumerator(
                SplitEnumeratorContext<NumberSequenceSplit> c, Collection<NumberSequenceSplit> state) {
            return numbers.restoreEnumerator(c, state);
        }
        @Override public SimpleVersionedSerializer<NumberSequenceSplit> getSplitSerializer() {
            return numbers.getSplitSerializer();
        }
        @Override public SimpleVersionedSerializer<Collection<NumberSequenceSplit>> getEnumeratorCheckpointSerializer() {
            return numbers.getEnumeratorCheckpointSerializer();
        }
    }

    static final class PacedReader implements SourceReader<Long, NumberSequenceSplit> {
        private final SourceReader<Long, NumberSequenceSplit> numbers;
        private final double perSecond;
        private final long idleAfter;
        private long emitted, began;

        PacedReader(SourceReader<Long, NumberSequenceSplit> numbers, double perSecond, long idleAfter) {
            this.numbers = numbers;
            this.perSecond = perSecond;
            this.idleAfter = idleAfter;
        }

        private double dueSeconds() {
            if (began == 0) began = System.nanoTime();
            if (emitted >= idleAfter) return Double.POSITIVE_INFINITY;
            return perSecond == 0 ? 0 : emitted / perSecond - (System.nanoTime() - began) / 1e9;
        }

        @Override public void start() { numbers.start(); }
        @Override public InputStatus pollNext(ReaderOutput<Long> out) throws Exception {
            if (dueSeconds() > 0) return InputStatus.NOTHING_AVAILABLE;
            InputStatus status = numbers.pollNext(out);
            if (status == InputStatus.MORE_AVAILABLE) emitted++;
            return status;
        }
        @Override public CompletableFuture<Void> isAvailable() {
            double due = dueSeconds();
            if (due <= 0) return numbers.isAvailable();
            CompletableFuture<Void> later = new CompletableFuture<>();
            return due == Double.POSITIVE_INFINITY ? later : later.completeOnTimeout(null, (long) (due * 1e6) + 1, TimeUnit.MICROSECONDS);
        }
        @Override public List<NumberSequenceSplit> snapshotState(long checkpoint) { return numbers.snapshotState(checkpoint); }
        @Override public void addSplits(List<NumberSequenceSplit> splits) { numbers.addSplits(splits); }
        @Override public void notifyNoMoreSplits() { numbers.notifyNoMoreSplits(); }
        @Override public void close() throws Exception { numbers.close(); }
    }

    static final TypeInformation<Tuple2<Long, byte[]>> RECORD = Types.TUPLE(Types.LONG, PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO);

    static final class Payload implements MapFunction<Long, Tuple2<Long, byte[]>> {
        private final int bytes;
        Payload(int bytes) { this.bytes = bytes; }
        @Override public Tuple2<Long, byte[]> map(Long n) { return Tuple2.of(n, new byte[bytes]); }
    }

    static final class ByNumber implements KeySelector<Tuple2<Long, byte[]>, Integer> {
        private final int salt;
        ByNumber(int salt) { this.salt = salt; }
        @Override public Integer getKey(Tuple2<Long, byte[]> record) { return (int) ((record.f0 * 31 + salt) % 1000); }
    }

    static final class Pass implements MapFunction<Tuple2<Long, byte[]>, Tuple2<Long, byte[]>> {
        @Override public Tuple2<Long, byte[]> map(Tuple2<Long, byte[]> record) { return record; }
    }

    /** Keeps `stateBytes` per key, waits, and throws every so many seconds. Emits nothing. */
    static final class Work extends KeyedProcessFunction<Integer, Tuple2<Long, byte[]>, Long> {
        private final Cost cost;
        private final int stateBytes;
        private final double failsAfterS;
        private transient ValueState<byte[]> kept;
        private transient long began;

        Work(long micros, int stateBytes, double failsAfterS) {
            this.cost = new Cost(micros);
            this.stateBytes = stateBytes;
            this.failsAfterS = failsAfterS;
        }

        @Override public void processElement(Tuple2<Long, byte[]> record, Context c, Collector<Long> out) throws Exception {
            if (kept == null) {
                began = System.nanoTime();
                kept = getRuntimeContext().getState(new ValueStateDescriptor<>("kept", PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO));
            }
            kept.update(new byte[stateBytes]);
            cost.pay();
            if (failsAfterS > 0 && System.nanoTime() - began > failsAfterS * 1e9) throw new IllegalStateException("intended failure");
        }
    }

    static final class Rules extends KeyedBroadcastProcessFunction<Integer, Tuple2<Long, byte[]>, Tuple2<Long, byte[]>, Long> {
        static final MapStateDescriptor<Long, Long> RULES = new MapStateDescriptor<>("rules", Types.LONG, Types.LONG);
        private final Cost cost;
        Rules(long micros) { cost = new Cost(micros); }
        @Override public void processElement(Tuple2<Long, byte[]> record, ReadOnlyContext c, Collector<Long> out) { cost.pay(); }
        @Override public void processBroadcastElement(Tuple2<Long, byte[]> rule, Context c, Collector<Long> out) throws Exception {
            c.getBroadcastState(RULES).put(rule.f0 % 10, rule.f0);
        }
    }

    static final class Nothing implements FlatMapFunction<Tuple2<Long, byte[]>, Long> {
        @Override public void flatMap(Tuple2<Long, byte[]> record, Collector<Long> out) { }
    }

    private final Map<String, String> given = new HashMap<>();
    private final List<String> statements = new ArrayList<>();
    private final Configuration settings = new Configuration();
    private StreamExecutionEnvironment env;

    private String text(String name, String otherwise) { return given.getOrDefault(name, otherwise); }
    private long number(String name, long otherwise) { return Long.parseLong(text(name, "" + otherwise)); }

    private VersionsJob(String[] words) {
        for (int i = 0; i + 1 < words.length; i += 2) {
            String name = words[i].substring(2), value = words[i + 1];
            if (name.equals("set")) settings.setString(value.substring(0, value.indexOf('=')), value.substring(value.indexOf('=') + 1));
            else if (name.equals("statement")) statements.add(value);
            else given.put(name, value);
        }
    }

    private DataStream<Tuple2<Long, byte[]>> source(String name, double perSecond) throws Exception {
        DataStream<Long> numbers;
        long limit = number("limit", 0);
        if (text("source", "flip-27").equals("legacy")) {
            // Flink 2 has no public SourceFunction, so the class is compiled only for Flink 1.
            numbers = (DataStream<Long>) Class.forName("versions.LegacyNumbers")
                    .getMethod("stream", StreamExecutionEnvironment.class, String.class, double.class)
                    .invoke(null, env, name, perSecond / env.getParallelism());
        } else {
            numbers = env.fromSource(new Paced(limit, perSecond, limit > 0, env.getParallelism()),
                    WatermarkStrategy.noWatermarks(), name, Types.LONG);
        }
        return numbers.map(new Payload((int) number("record-bytes", 500))).returns(RECORD).name("payload");
    }

    private void sql() throws Exception {
        StreamTableEnvironment tables = StreamTableEnvironment.create(env);
        tables.getConfig().getConfiguration().addAll(settings);
        tables.createTemporarySystemFunction("SLOW", Slow.class);
        double rate = number("rate", 5000);
        // A view of ten numbers whose source stays open, and a view of numbers at a rate.
        tables.createTemporaryView("ten", env.fromSource(new Paced(10, 0, false, 1), WatermarkStrategy.noWatermarks(), "ten", Types.LONG).setParallelism(1));
        tables.createTemporaryView("numbers", source("numbers", rate));
        for (String statement : statements) tables.executeSql(statement);
    }

    private void keyed() throws Exception {
        DataStream<Tuple2<Long, byte[]>> records = source(text("source-name", "orders"), number("rate", 5000));
        for (int n = 1; n < number("stages", 1); n++) records = records.keyBy(new ByNumber(n)).map(new Pass()).returns(RECORD).name("stage " + n);
        records.keyBy(new ByNumber(0))
                .process(new Work(number("cost-us", 1000), (int) number("state-bytes", 8), number("fails-after-s", 0)))
                .returns(Types.LONG)
                .name(text("work-name", "work"));
    }

    private void broadcast() throws Exception {
        double rate = number("rate", 5000);
        DataStream<Tuple2<Long, byte[]>> records = source("first", rate / 2).union(source("second", rate / 2));
        records.keyBy(new ByNumber(0))
                .connect(source("rules", 10).broadcast(Rules.RULES))
                .process(new Rules(number("cost-us", 1000)))
                .returns(Types.LONG)
                .name("apply rules");
    }

    /** A chain of vertices: a full shuffle before every eighth of them, and one of them slow. */
    private void many() throws Exception {
        DataStream<Tuple2<Long, byte[]>> records = source("orders", number("rate", 500));
        long count = number("vertices", 40);
        for (int n = 1; n < count; n++) {
            DataStream<Tuple2<Long, byte[]>> in = n % 8 == 1 ? records.rebalance() : records;
            if (n == count - 1) in.flatMap(new Nothing()).returns(Types.LONG).name("last").disableChaining();
            else records = in.map(new Pass()).returns(RECORD).name("step " + n).disableChaining();
        }
    }

    private void run() throws Exception {
        env = StreamExecutionEnvironment.getExecutionEnvironment(settings);
        env.setParallelism((int) number("parallelism", 2));
        if (!statements.isEmpty()) { sql(); return; }
        switch (text("shape", "keyed")) {
            case "keyed": keyed(); break;
            case "broadcast": broadcast(); break;
            case "many": many(); break;
            default: throw new IllegalArgumentException(text("shape", ""));
        }
        env.execute(text("name", "job"));
    }

    public static void main(String[] words) throws Exception { new VersionsJob(words).run(); }
}
