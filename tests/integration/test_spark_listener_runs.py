"""The listener in a real query sends what Spark reports. A server that does not respond never disturbs the query."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import contextmanager

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from backend.contracts.spark import SparkPushIn
from collectors.spark import demo
from collectors.spark.listener import BarrierscopeListener
from tests.support.pushing import accepting_pushes
from tests.support.waiting import until

_ROWS = 10
_GOOD_BATCHES = 5


@pytest.fixture
def place():
    """Yield the address of a server that accepts every push, and the list of bodies that it received."""
    with accepting_pushes() as found:
        yield found


def test_the_listener_sends_each_batch_and_the_failure_and_a_dead_endpoint_disturbs_nothing(
    spark_session, place, tmp_path
):
    url, got = place
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        dead_url = f"http://127.0.0.1:{free.getsockname()[1]}"
    heard = BarrierscopeListener(url)
    unheard = BarrierscopeListener(dead_url, queue_size=2)
    for listener in (heard, unheard):
        spark_session.streams.addListener(listener)
    try:
        rows = spark_session.readStream.format("rate-micro-batch").option("rowsPerBatch", _ROWS).load()
        fails = F.when(F.col("value") < _ROWS * _GOOD_BATCHES, F.col("value")).otherwise(F.expr("raise_error('no')"))
        counts = rows.groupBy((fails % 3).alias("key")).count()
        query = (
            counts.writeStream.format("noop")
            .outputMode("update")
            .queryName("tried")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(processingTime="100 milliseconds")
            .start()
        )
        with pytest.raises(StreamingQueryException):
            query.awaitTermination(120)
        until(lambda: b"terminated" in b"".join(got), "the end of the query")
        assert heard.flush(10)
        until(lambda: unheard.dropped_count >= _GOOD_BATCHES, "drops that are counted")
    finally:
        for listener in (heard, unheard):
            spark_session.streams.removeListener(listener)
            listener.close(1.0)

    said = [json.loads(p.json) if hasattr(p, "json") else p for p in query.recentProgress]
    events = [e for body in got for e in SparkPushIn.model_validate_json(body).events if e.event != "alive"]
    told = [e.progress for e in events if e.event == "progress"]
    # The query lost no batch because of the two servers: every batch before the failing batch ran.
    assert [p.batch_id for p in told] == [p["batchId"] for p in said] == list(range(_GOOD_BATCHES))
    assert [p.batch_duration for p in told] == [p["batchDuration"] for p in said]
    assert all({"addBatch", "walCommit", "commitOffsets"} <= p.duration_ms.keys() for p in told)
    assert all(p.state_operators[0].num_state_store_instances == 4 for p in told)
    assert (events[0].event, events[-1].event) == ("started", "terminated")
    assert (events[-1].error_class, events[-1].last_batch_id) == ("USER_RAISED_EXCEPTION", _GOOD_BATCHES - 1)
    # The unreachable server received nothing. Its listener counted the start, each batch and the end as dropped.
    assert (unheard.sent_count, unheard.dropped_count) == (0, _GOOD_BATCHES + 2)
    assert (heard.sent_count, heard.dropped_count) == (_GOOD_BATCHES + 2, 0)


def test_the_demo_query_reports_its_batches_and_continues_after_a_restart(spark_session, place, tmp_path, monkeypatch):
    url, got = place

    @contextmanager
    def shared(_folder, _java_options):
        yield spark_session

    monkeypatch.setattr(demo, "_session", shared)
    monkeypatch.setattr(demo, "TRIGGER_MS", 100)
    monkeypatch.setattr(demo, "_LOOK_S", 0.1)

    def run():
        """Run the demo until it has sent two batches, and return the progress of every batch that it sent."""
        got.clear()
        stop, started = threading.Event(), []
        watcher = threading.Thread(target=_stop_after, args=(got, b'"progress"', 2, stop))
        watcher.start()
        demo.run(api_url=url, token=None, folder=tmp_path, stop=stop, on_started=lambda: started.append(1))
        watcher.join()
        assert started == [1]
        pushes = [SparkPushIn.model_validate_json(body) for body in got]
        assert {(p.deployment, p.trigger_interval_ms) for p in pushes} == {("demo-spark", 100)}
        events = [e for p in pushes for e in p.events if e.event != "alive"]
        assert (events[0].event, events[0].name, events[-1].event) == ("started", demo.NAME, "terminated")
        assert events[-1].exception is None
        return [e.progress for e in events if e.event == "progress"]

    first, second = run(), run()

    assert [p.batch_id for p in first] == list(range(len(first)))
    # The second run of the same query repeats no batch and omits none.
    assert [p.batch_id for p in second] == list(range(len(first), len(first) + len(second)))
    assert {p.id for p in second} == {p.id for p in first}
    assert {p.run_id for p in second}.isdisjoint(p.run_id for p in first)
    for batch in (*first, *second):
        assert (batch.num_input_rows, batch.name) == (1_000, demo.NAME)
        assert batch.state_operators[0].num_rows_total > 0


def test_a_demo_that_fails_gives_the_reason_in_one_line(spark_session, place, tmp_path, monkeypatch):
    @contextmanager
    def broken(_folder, _java_options):
        spark_session.sql("SELECT no_such_column")
        yield spark_session

    monkeypatch.setattr(demo, "_session", broken)
    given = {"api_url": place[0], "token": None, "folder": tmp_path, "on_started": lambda: None}

    with pytest.raises(RuntimeError, match="no_such_column") as error:
        demo.run(**given, stop=threading.Event())
    assert "\n" not in str(error.value)
    # A stop during the start is not an error.
    stop = threading.Event()
    stop.set()
    demo.run(**given, stop=stop)


def _stop_after(got, word, count, stop):
    try:
        until(lambda: sum(body.count(word) for body in list(got)) >= 2 * count, f"{count} batches")
    finally:
        stop.set()
