package shapes;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.api.java.function.MapFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.streaming.ValueState;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/** Counts rows by key with {@code transformWithState}, which Spark has from version 4 on. */
public final class Counting extends StatefulProcessor<Long, Row, Long> {
    private transient ValueState<Long> count;

    /** Return the counts of the rows by {@code value} modulo 3. */
    public static Dataset<Row> counts(Dataset<Row> rows) {
        MapFunction<Row, Long> key = row -> row.<Long>getAs("value") % 3;
        return rows.groupByKey(key, Encoders.LONG())
            .transformWithState(new Counting(), TimeMode.None(), OutputMode.Update(), Encoders.LONG())
            .toDF("count");
    }

    @Override
    public void init(OutputMode mode, TimeMode time) {
        count = getHandle().getValueState("count", Encoders.LONG(), TTLConfig.NONE());
    }

    @Override
    public Iterator<Long> handleInputRows(Long key, Iterator<Row> rows, TimerValues timers) {
        long now = count.exists() ? count.get() : 0;
        for (; rows.hasNext(); rows.next()) {
            now++;
        }
        count.update(now);
        List<Long> found = new ArrayList<>(List.of(now));
        return CollectionConverters.asScala(found.iterator());
    }
}
