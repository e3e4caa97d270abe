package versions;

import java.util.concurrent.locks.LockSupport;

import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.source.RichParallelSourceFunction;

/** Numbers from a legacy {@code SourceFunction}, so many a second in each subtask. Flink 1 only. */
public final class LegacyNumbers extends RichParallelSourceFunction<Long> {
    private final double perSecond;
    private volatile boolean isRunning = true;

    private LegacyNumbers(double perSecond) { this.perSecond = perSecond; }

    public static DataStream<Long> stream(StreamExecutionEnvironment env, String name, double perSecond) {
        return env.addSource(new LegacyNumbers(perSecond), name, Types.LONG);
    }

    @Override public void run(SourceContext<Long> out) {
        long began = System.nanoTime();
        for (long n = 0; isRunning; n++) {
            long due = (long) (n / perSecond * 1e9) - (System.nanoTime() - began);
            if (due > 1_000_000) LockSupport.parkNanos(due);
            synchronized (out.getCheckpointLock()) { out.collect(n); }
        }
    }

    @Override public void cancel() { isRunning = false; }
}
