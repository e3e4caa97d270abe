"""Tests of ``diagnose --event-log``: an event log gives the same batches and the same verdict as the listener."""

from __future__ import annotations

import gzip
import json
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from backend.analysis.measures.evidence import JobEvidence
from backend.analysis.verdict.verdict import diagnose
from backend.cli import app
from backend.contracts.spark import SparkPushIn
from backend.contracts.spark_events import job_observation, runs_of
from backend.domain.observation import JobObservation
from backend.domain.topology import Topology
from collectors.spark.event_log import read_event_logs
from tests.support import recorded_spark

FOLDER = Path(__file__).resolve().parents[2] / "contract" / "recordings_spark_event_logs"
NAMES = ("b_windowed_hdfs", "d_behind_files_limited", "d_behind_files_unlimited")
QUERY, RUN = "11111111-2222-3333-4444-555555555555", "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
SQL = "org.apache.spark.sql.streaming.StreamingQueryListener$Query"


def observe(push: SparkPushIn):
    return [job_observation(run, push, None) for run in runs_of(push.events)]


def started(run: str = RUN, at: str = "2026-11-21T10:00:00.000Z") -> dict[str, object]:
    return {"Event": f"{SQL}StartedEvent", "id": QUERY, "runId": run, "name": "orders", "timestamp": at}


def batch(number: int, *, run: str = RUN, minute: int = 0) -> dict[str, object]:
    progress = {
        "id": QUERY,
        "runId": run,
        "name": "orders",
        "timestamp": f"2026-11-21T10:{minute:02}:{number:02}.000Z",
        "batchId": number,
        "batchDuration": 400,
        "durationMs": {"addBatch": 300, "triggerExecution": 400},
        "numInputRows": 10,
        "sources": [{"description": "rate", "startOffset": '{"a": 1}', "endOffset": "2", "latestOffset": None}],
        "stateOperators": [],
    }
    return {"Event": f"{SQL}ProgressEvent", "progress": progress}


def ended(exception: str | None = None, run: str = RUN) -> dict[str, object]:
    return {"Event": f"{SQL}TerminatedEvent", "id": QUERY, "runId": run, "exception": exception}


HEAD = (
    {"Event": "SparkListenerLogStart", "Spark Version": "4.3.0"},
    {"Event": "SparkListenerApplicationStart", "App Name": "orders-app", "Timestamp": 1},
    {"Event": "SparkListenerTaskEnd", "Stage ID": 3, "padding": "x" * 100_000},
)


def text_of(*events: dict[str, object]) -> bytes:
    return "".join(f"{json.dumps(e, separators=(',', ':'))}\n" for e in events).encode()


@pytest.fixture
def written(tmp_path: Path):
    def write(data: bytes, name: str = "local-1") -> str:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        return str(path)

    return write


def _rows_of(name: str) -> list[int | None]:
    read: list[JobObservation] = []

    def seen(push: SparkPushIn):
        read.extend(observe(push))
        return read

    read_event_logs([str(FOLDER / f"{name}.jsonl.gz")], seen, job=None)
    return [c.batch.input_row_count for c in read[0].checkpoints if c.batch]


@pytest.mark.parametrize("name", NAMES)
def test_an_event_log_gives_the_verdict_that_the_listener_s_events_give(name: str):
    push = SparkPushIn.model_validate(recorded_spark.push(recorded_spark.recorded(name)))
    (heard,) = observe(push)
    evidence = JobEvidence(
        topology=Topology(()), now=recorded_spark.NOW, checkpoints=heard.checkpoints, is_micro_batched=True
    )

    (found,) = read_event_logs([str(FOLDER / f"{name}.jsonl.gz")], observe, job=None).jobs

    assert found.diagnosis.health is diagnose(evidence).health
    assert [c.batch.input_row_count for c in heard.checkpoints if c.batch] == _rows_of(name)
    assert found.diagnosis.verdict.sentence == diagnose(evidence).verdict.sentence
    assert found.name == heard.name


def test_a_query_is_diagnosed_from_a_plain_event_log(written, capsys):
    path = written(text_of(*HEAD, started(), *(batch(n) for n in range(10)), ended()))

    assert app.run(["diagnose", "--event-log", path]) == 0

    out = capsys.readouterr().out
    assert out.startswith("orders-app · Spark 4.3.0 · 1 job · read in ")
    assert "orders" in out
    assert "Micro-batches are healthy" in out
    assert "back-pressure could not be read" not in out


def test_offsets_are_read_as_the_listener_has_them(written):
    read = []

    def seen(push: SparkPushIn):
        read.extend(push.events)
        return observe(push)

    read_event_logs([written(text_of(*HEAD, started(), batch(0)))], seen, job=None)

    source = read[1].progress.sources[0]
    assert (source.start_offset, source.end_offset, source.latest_offset) == ({"a": 1}, 2, None)


def test_a_compressed_event_log_is_read(written):
    data = text_of(*HEAD, started(), *(batch(n) for n in range(10)))
    pyarrow = pytest.importorskip("pyarrow")
    packed = bytes(pyarrow.compress(data, codec="zstd", asbytes=True))

    for path in (written(packed, "a.zstd"), written(gzip.compress(data), "b.gz")):
        (found,) = read_event_logs([path], observe, job=None).jobs
        assert found.as_of == datetime(2026, 11, 21, 10, 0, 9, 400_000, tzinfo=UTC)


def test_the_end_of_a_zstd_file_that_is_still_written_does_not_hide_what_precedes_it(written):
    pyarrow = pytest.importorskip("pyarrow")
    events = (*HEAD, started(), *map(batch, range(50)))
    frames = [bytes(pyarrow.compress(text_of(e), codec="zstd", asbytes=True)) for e in events]
    path = written(b"".join(frames)[:-9], "app.zstd.inprogress")

    (found,) = read_event_logs([path], observe, job=None).jobs

    assert found.as_of >= datetime(2026, 11, 21, 10, 0, 35, tzinfo=UTC)


def test_a_cut_event_log_says_that_only_a_part_of_it_was_read(written):
    data = gzip.compress(text_of(*HEAD, started(), *map(batch, range(50))))
    path = written(data[: len(data) // 2], "a.gz")

    cut, broken = read_event_logs([path], observe, job=None).problems

    assert cut.endswith("cannot be read to its end (damaged, cut or still written): only a first part was read")
    assert broken == "1 event could not be read and is left out"


def test_zstd_without_pyarrow_is_an_error_of_one_line(written, capsys, monkeypatch):
    pyarrow = pytest.importorskip("pyarrow")
    path = written(bytes(pyarrow.compress(text_of(*HEAD), codec="zstd", asbytes=True)), "a.zstd")
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    assert app.run(["diagnose", "--event-log", path]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "needs pyarrow" in error


def test_another_codec_is_an_error_that_names_the_setting(written, capsys):
    assert app.run(["diagnose", "--event-log", written(b"LZ4Block\x00\x01\x02", "a.lz4")]) == 2
    assert "spark.eventLog.compression.codec" in capsys.readouterr().err


def test_the_files_of_a_rolling_log_are_read_in_the_order_of_their_numbers(written, tmp_path):
    folder = "eventlog_v2_app-1"
    written(b"", f"{folder}/appstatus_app-1.inprogress")
    written(text_of(*(batch(n) for n in range(6, 12))), f"{folder}/events_10_app-1")
    written(text_of(*HEAD, started(), *(batch(n) for n in range(3))), f"{folder}/events_1_app-1")
    written(text_of(*(batch(n) for n in range(3, 6))), f"{folder}/events_2_app-1")

    (found,) = read_event_logs([str(tmp_path / folder)], observe, job=None).jobs

    assert found.considered_count == 10
    assert found.as_of == datetime(2026, 11, 21, 10, 0, 11, 400_000, tzinfo=UTC)


def test_broken_events_are_counted_and_the_others_are_read(written, capsys):
    cut = f'{{"Event":"{SQL}ProgressEvent","progress":{{"id"\n'.encode()
    broken = cut + text_of({"Event": f"{SQL}ProgressEvent"})
    path = written(text_of(*HEAD, started()) + broken + text_of(*(batch(n) for n in range(6))))

    assert app.run(["diagnose", "--event-log", path]) == 0
    captured = capsys.readouterr()
    assert "2 events could not be read" in captured.err
    assert "Micro-batches" in captured.out


@pytest.mark.parametrize(
    "document",
    [
        {"Event": f"{SQL}ProgressEvent", "progress": "x"},
        {"Event": f"{SQL}ProgressEvent", "progress": {**batch(9)["progress"], "sources": [1]}},
        {"Event": f"{SQL}ProgressEvent", "progress": {**batch(9)["progress"], "batchDuration": 2**52}},
        {"Event": {f"{SQL}ProgressEvent": 1}},
        {"Event": [f"{SQL}ProgressEvent"]},
        {"Event": f"{SQL}StartedEvent", "id": [1], "runId": {"a": 1}, "timestamp": 7},
        {"Event": f"{SQL}TerminatedEvent", "id": [1], "runId": {"a": 1}},
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_a_part_of_another_type_is_a_broken_event_and_never_ends_the_reading(document, is_first: bool, written):
    good, broken = text_of(*HEAD, started(), *(batch(n) for n in range(6))), text_of(document)
    path = written(broken + good if is_first else good + broken)

    found = read_event_logs([path], observe, job=None)

    assert found.problems == ("1 event could not be read and is left out",)
    assert [job.name for job in found.jobs] == ["orders"]
    assert found.as_of.year == 2026


def test_a_query_that_failed_is_failing_and_the_exceptions_of_its_earlier_runs_are_evidence(written):
    other = RUN.replace("a", "f")
    events = [started(), batch(0), ended("boom"), started(other, "2026-11-21T10:05:00.000Z")]
    path = written(text_of(*HEAD, *events, batch(1, run=other, minute=5), ended("boom again", other)))

    (found,) = read_event_logs([path], observe, job="orders").jobs

    assert found.engine_state == "FAILED"
    assert "boom again" in " ".join(row.statement for row in found.diagnosis.verdict.evidence)


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        ([], "has no event of a streaming query", 1),
        (["--job", "none"], "no query is called 'none'", 2),
        (["--log", __file__], "event logs of Spark are read alone", 2),
    ],
)
def test_errors_are_one_line(written, capsys, arguments, said, code):
    assert app.run(["diagnose", "--event-log", written(text_of(*HEAD)), *arguments]) == code
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert said in error


@pytest.mark.parametrize(
    ("lines", "codes"),
    [
        pytest.param([started(), batch(0), batch(1), batch(2)], (0, 0), id="calm"),
        pytest.param([started(), batch(0), ended("boom")], (3, 3), id="failed"),
    ],
)
def test_a_script_learns_from_the_code_whether_a_query_failed(written, capsys, lines, codes):
    path = written(text_of(*HEAD, *lines))

    assert app.run(["diagnose", "--event-log", path]) == 0
    assert tuple(app.run(["diagnose", "--event-log", path, "--fail-on", c]) for c in ("failing", "slow")) == codes
