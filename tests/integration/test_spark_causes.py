"""Real queries show the causes that the verdict names: a log that is compacted, and state that is never cleaned.

The listener reports them, and what it sends is judged. The log is made long before it is compacted, so that one query
shows what takes a million files otherwise.
"""

from __future__ import annotations

import json

import pytest
from pyspark.sql import functions as F

from backend.analysis.verdict.verdict import diagnose
from collectors.spark.listener import BarrierscopeListener
from tests.support.made_up_queries import evidence_of
from tests.support.pushing import accepting_pushes
from tests.support.waiting import until

pytestmark = pytest.mark.slow

_LOGGED_FILES = 400_000
_BATCHES = 14


@pytest.fixture
def heard(spark_session):
    """Yield a function that returns the events of the newest run, as the listener has sent them."""
    with accepting_pushes() as (url, got):
        listener = BarrierscopeListener(url)
        spark_session.streams.addListener(listener)

        def of_run(run_id):
            assert listener.flush(30)
            events = [e for body in list(got) for e in json.loads(body)["events"]]
            return [e for e in events if e["event"] == "progress" and e["progress"]["runId"] == run_id]

        yield of_run
        spark_session.streams.removeListener(listener)
        listener.close(1.0)


def test_a_query_from_files_to_files_is_slow_when_the_log_of_its_sink_is_compacted(spark_session, heard, tmp_path):
    inputs, out = tmp_path / "in", tmp_path / "out"
    inputs.mkdir()

    def run(count, first):
        for n in range(first, first + count):
            (inputs / f"{n:03}.json").write_text('{"value": 1}\n')
        rows = spark_session.readStream.schema("value INT").option("maxFilesPerTrigger", 1).json(str(inputs))
        query = (
            rows.writeStream.format("json")
            .queryName("files-to-files")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(out))
        )
        assert query.awaitTermination(400)
        until(lambda: len(heard(str(query.runId))) == count, "the events of all batches")
        return heard(str(query.runId))

    run(10, 0)
    log = out / "_spark_metadata" / "9.compact"
    line = {"size": 1, "isDir": False, "modificationTime": 1, "blockReplication": 1, "blockSize": 1, "action": "add"}
    with log.open("a") as file:
        for n in range(_LOGGED_FILES):
            file.write("\n" + json.dumps({"path": f"file:///gone/part-{n:06}.json", **line}))
    log.with_name(".9.compact.crc").unlink()

    verdict = diagnose(evidence_of(run(24, 10))).verdict
    said = " ".join([verdict.sentence, *(e.statement for e in verdict.evidence)])
    assert "Every 10th batch takes" in said
    assert "the log of the file sink (the folder _spark_metadata)" in said


@pytest.mark.parametrize(
    ("watermark", "said"),
    [(None, "the query reports no watermark"), ("10 minutes", "the watermark is set on another column")],
)
def test_state_that_the_watermark_does_not_clean_is_named(spark_session, heard, tmp_path, watermark, said):
    rows = spark_session.readStream.format("rate-micro-batch").option("rowsPerBatch", 500)
    # Event time moves by four hours with each batch, so that any window would be over.
    rows = rows.option("advanceMillisPerBatch", 4 * 3_600_000).load()
    if watermark is not None:
        rows = rows.withWatermark("timestamp", watermark)
    query = (
        rows.groupBy(F.col("value")).count()
        .writeStream.format("noop").outputMode("update").queryName("uncleaned")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="50 milliseconds")
        .start()
    )  # fmt: skip
    try:
        until(lambda: len(heard(str(query.runId))) >= _BATCHES, "enough batches")
    finally:
        query.stop()

    verdict = diagnose(evidence_of(heard(str(query.runId)))).verdict
    assert verdict.kind == "growth"
    assert "no row was removed" in verdict.sentence
    assert said in verdict.sentence
