"""Tests of our listener with recorded Spark events and a local server, without Spark."""

from __future__ import annotations

import json
import logging
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from backend.contracts.spark import SparkPushIn
from collectors.spark import listener as module
from collectors.spark.listener import BarrierscopeListener
from tests.support.recorded_spark import batches, recorded
from tests.support.waiting import PATIENCE_S, until

TOKEN = "a-token-of-this-test"


@contextmanager
def server(statuses=(), *, delay=None) -> Iterator[SimpleNamespace]:
    """Run a server that responds with ``statuses`` in order, then with 200, and stores the accepted bodies.

    If the event ``delay`` is passed, the server does not respond until this event is set.
    """
    left = list(statuses)
    got: list[dict] = []
    headers: list[dict] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if delay is not None:
                delay.wait(PATIENCE_S)
            status = left.pop(0) if left else 200
            if status == 200:
                got.append(body)
            headers.append(dict(self.headers))
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", "http://127.0.0.1:1/elsewhere")
            self.end_headers()

        def log_message(self, *_):
            pass

    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=made.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield SimpleNamespace(url=f"http://127.0.0.1:{made.server_port}", got=got, headers=headers)
    finally:
        if delay is not None:
            delay.set()
        made.shutdown()
        thread.join()
        made.server_close()


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(module, "_BACK_OFF_FIRST_S", 0.01)
    monkeypatch.setattr(module, "_BACK_OFF_MOST_S", 0.02)


@contextmanager
def listening(url, **more) -> Iterator[BarrierscopeListener]:
    made = BarrierscopeListener(url, more.pop("token", TOKEN), deployment="tests", **more)
    try:
        yield made
    finally:
        made.close(2.0)


def progress_event(batch):
    names = ("id", "runId", "name", "batchId", "timestamp", "batchDuration")
    told = {n: batch[n] for n in names} | {"json": json.dumps(batch)}
    return SimpleNamespace(progress=SimpleNamespace(**told))


def play(listener, name="b_windowed_hdfs"):
    """Call the methods of the listener with the events of a recording, in order."""
    for line in recorded(name):
        match line["event"]:
            case "started":
                listener.onQueryStarted(SimpleNamespace(**line))
            case "progress":
                listener.onQueryProgress(progress_event(line["progress"]))
            case "terminated":
                listener.onQueryTerminated(SimpleNamespace(**line))


def test_pushes_fit_the_contract_and_have_every_event_in_order():
    with server() as place, listening(place.url, trigger_interval_ms=2000) as listener:
        play(listener)
        assert listener.flush(PATIENCE_S)
        assert (listener.sent_count, listener.dropped_count) == (27, 0)

    pushes = [SparkPushIn.model_validate(body) for body in place.got]
    events = [e for push in pushes for e in push.events]
    assert [e.event for e in events] == ["started", *["progress"] * 25, "terminated"]
    assert [e.progress.batch_id for e in events[1:-1]] == list(range(25))
    assert (pushes[0].deployment, pushes[0].trigger_interval_ms) == ("tests", 2000)
    # The terminated event repeats the name and the last batch, because it may arrive alone or out of order.
    assert (events[-1].name, events[-1].last_batch_id) == ("b_windowed_hdfs", 24)
    assert place.headers[0]["Authorization"] == f"Bearer {TOKEN}"


def test_observed_metrics_and_the_metrics_of_the_sink_are_not_sent():
    sink = {"description": "FileSink[/out]", "numOutputRows": 71, "metrics": {"customers": "12"}}
    batch = batches("b_windowed_hdfs")[3] | {"observedMetrics": {"salaries": {"sum": 1}}, "sink": sink}
    with server() as place, listening(place.url) as listener:
        listener.onQueryProgress(progress_event(batch))
        assert listener.flush(PATIENCE_S)

    assert "salaries" not in json.dumps(place.got)
    assert "customers" not in json.dumps(place.got)
    # The description shows whether each batch also writes a log of files, which is compacted from time to time.
    assert place.got[0]["events"][0]["progress"]["sink"] == {"description": "FileSink[/out]"}


def test_without_a_server_the_bounded_queue_drops_the_oldest_events_and_counts_them(caplog):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with caplog.at_level(logging.DEBUG), listening(url, queue_size=10) as listener:
        play(listener)
        assert not listener.flush(0.05)
        assert listener.dropped_count in (17, 16)
    assert listener.dropped_count == 27
    assert listener.sent_count == 0
    assert "did not take events" in caplog.text
    assert TOKEN not in caplog.text


def test_a_server_that_comes_back_gets_the_kept_events_and_the_count_of_dropped_ones():
    with server([503, 500, 429]) as place, listening(place.url, queue_size=10) as listener:
        play(listener)
        assert listener.flush(PATIENCE_S)

    events = [e for body in place.got for e in body["events"]]
    assert events[-1]["event"] == "terminated"
    assert place.got[-1]["dropped_count"] == listener.dropped_count
    assert listener.sent_count + listener.dropped_count == 27


def test_a_refused_event_costs_no_other_event():
    with server([422]) as place, listening(place.url) as listener:
        play(listener)
        assert listener.flush(PATIENCE_S)

    assert sum(len(body["events"]) for body in place.got) == 27 - listener.dropped_count
    assert listener.dropped_count <= 1


def test_spark_never_waits_for_a_server_that_hangs():
    hanging = threading.Event()
    with server(delay=hanging) as place, listening(place.url, timeout_s=PATIENCE_S) as listener:
        play(listener)
        # If a call of the listener had waited for the server, the server would have accepted a body by now.
        assert place.got == []
        hanging.set()
        assert listener.flush(PATIENCE_S)


def test_an_unreadable_event_is_counted_as_dropped_and_raises_nothing():
    with server() as place, listening(place.url) as listener:
        listener.onQueryProgress(SimpleNamespace(progress=None))
        listener.onQueryStarted(None)
        assert listener.dropped_count == 2


@pytest.mark.parametrize("url", ["", "barrierscope:8050", "ftp://host", "http://u:p@host", "http://[::1", None])
def test_an_invalid_address_is_logged_and_does_not_stop_the_job(url, caplog):
    with listening(url) as listener:
        play(listener)
    assert listener.dropped_count == 27
    assert "nothing is sent" in caplog.text


def test_the_listener_follows_no_redirect():
    with server([302] * 3) as place, listening(place.url) as listener:
        play(listener)
        assert listener.flush(PATIENCE_S)

    assert len(place.headers) >= 4


def test_during_a_long_batch_alive_events_are_sent(monkeypatch):
    monkeypatch.setattr(module, "_ALIVE_EVERY_S", 0.05)
    with server() as place, listening(place.url) as listener:
        listener.onQueryStarted(SimpleNamespace(**recorded("b_windowed_hdfs")[0]))
        until(lambda: any(e["event"] == "alive" for body in place.got for e in body["events"]), "a sign of life")
    for body in place.got:
        SparkPushIn.model_validate(body)


def test_alive_events_of_a_quiet_query_are_sent_while_another_query_is_busy(monkeypatch):
    monkeypatch.setattr(module, "_ALIVE_EVERY_S", 0.05)
    chatty, quiet = batches("b_windowed_hdfs"), recorded("a_stateless_rate")[0]
    with server() as place, listening(place.url) as listener:
        listener.onQueryStarted(SimpleNamespace(**quiet))

        def is_told():
            listener.onQueryProgress(progress_event(chatty[0]))
            return quiet["runId"] in [e.get("run_id") for b in place.got for e in b["events"] if e["event"] == "alive"]

        until(is_told, "a sign of life of the quiet one")
        assert listener.flush(PATIENCE_S)
        # Events that only report that a query is alive do not count as sent events.
        assert listener.sent_count == sum(e["event"] != "alive" for b in place.got for e in b["events"])
    for body in place.got:
        SparkPushIn.model_validate(body)


def test_the_listener_file_works_alone_without_the_project(tmp_path):
    shutil.copy(module.__file__, tmp_path / "barrierscope_listener.py")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "for name in ('backend', 'collectors', 'dashboard', 'httpx', 'pydantic', 'structlog', 'orjson', 'aiohttp'):\n"
        "    sys.modules[name] = None\n"
        "from barrierscope_listener import BarrierscopeListener\n"
        "made = BarrierscopeListener('http://127.0.0.1:1')\n"
        "made.close(); print(made.dropped_count)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.stdout.strip() == "0", done.stderr


def test_the_duration_is_sent_though_the_json_of_spark_before_4_does_not_have_it():
    batch = batches("b_windowed_hdfs")[3]
    old = progress_event(batch)
    old.progress.json = json.dumps({key: value for key, value in batch.items() if key != "batchDuration"})
    with server() as place, listening(place.url) as listener:
        listener.onQueryProgress(old)
        listener.onQueryProgress(progress_event(batch))
        assert listener.flush(PATIENCE_S)

    sent = [event["progress"] for body in place.got for event in body["events"]]
    assert [progress["batchDuration"] for progress in sent] == [batch["batchDuration"]] * 2
    assert [event.keys() for body in place.got for event in body["events"]] == [{"event", "seen_at", "progress"}] * 2


def test_a_query_whose_application_was_stopped_is_reported_as_ended(monkeypatch):
    monkeypatch.setattr(module, "_ALIVE_EVERY_S", 0.05)
    application = SimpleNamespace()
    monkeypatch.setattr(module, "_context", lambda: application)
    with server() as place, listening(place.url) as listener:
        for line in recorded("b_windowed_hdfs")[:3]:
            if line["event"] == "started":
                listener.onQueryStarted(SimpleNamespace(**line))
            else:
                listener.onQueryProgress(progress_event(line["progress"]))
        until(lambda: "alive" in _kinds(place), "a sign of life")
        # Another application in the same process is not the one of the query.
        monkeypatch.setattr(module, "_context", SimpleNamespace)
        until(lambda: "terminated" in _kinds(place), "the end")
        count = _kinds(place).count("alive")
        listener.onQueryIdle(SimpleNamespace(id="a", runId="b", timestamp="2026-11-21T10:00:00Z"))
        assert listener.flush(PATIENCE_S)

    (ended,) = [e for body in place.got for e in body["events"] if e["event"] == "terminated"]
    assert (ended["name"], ended["exception"], ended["last_batch_id"]) == ("b_windowed_hdfs", None, 1)
    assert _kinds(place).count("alive") == count
    assert all(SparkPushIn.model_validate(body) for body in place.got)


def _kinds(place):
    return [event["event"] for body in place.got for event in body["events"]]
