"""The listener's jar in a real query: loaded by a setting, it sends each event once, as the listener in Python does.

A server that is away, hangs, refuses or answers nonsense never disturbs the query.
"""

from __future__ import annotations

import json
import socket
import threading
from contextlib import ExitStack, contextmanager

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from backend.contracts.spark import SparkPushIn
from collectors.spark import listener as python_listener
from collectors.spark.jar import CLASS, path
from collectors.spark.listener import BarrierscopeListener
from tests.support.receiving import receiving
from tests.support.recorded_spark import NAMES, batches
from tests.support.waiting import PATIENCE_S, until

_ROWS = 10
_GOOD_BATCHES = 3
_SETTING = "spark.sql.streaming.streamingQueryListeners"
_TOKEN = "a-token-of-this-test"
# The event's own time differs, because two listeners are called one after the other.
_OF_THE_LISTENER = {"seen_at"}


@pytest.fixture(scope="module")
def jvm(spark_session):
    """Return the JVM with the jar on the class path of the driver, where ``--jars`` puts it."""
    found = spark_session._jvm
    loader = found.java.lang.Thread.currentThread().getContextClassLoader()
    loader.addURL(found.java.io.File(path()).toURI().toURL())
    return found


@pytest.fixture
def by_setting(spark_session, jvm):
    """Return a function that makes a session as if the application had been started with these settings."""
    conf = spark_session._jsc.sc().conf()
    changed = []

    def made(**settings):
        for key, value in settings.items():
            name = _SETTING if key == "listener" else f"spark.barrierscope.{key.replace('_', '.')}"
            conf.set(name, str(value))
            changed.append(name)
        return spark_session.newSession()

    yield made
    for name in changed:
        conf.remove(name)


@pytest.fixture
def listening(jvm):
    """Return a function that makes a listener of the jar with these settings, beside those that Spark loads."""

    def made(url, **settings):
        conf = jvm.org.apache.spark.SparkConf(False).set("spark.barrierscope.url", url)
        for key, value in settings.items():
            conf.set(f"spark.barrierscope.{key.replace('_', '.')}", str(value))
        return jvm.barrierscope.spark.BarrierscopeListener(conf)

    return made


def _failing(session, folder, name):
    """Run a query with state that fails after some batches."""
    rows = session.readStream.format("rate-micro-batch").option("rowsPerBatch", _ROWS).load()
    fails = F.when(F.col("value") < _ROWS * _GOOD_BATCHES, F.col("value")).otherwise(F.expr("raise_error('no')"))
    query = (
        rows.groupBy((fails % 3).alias("key"))
        .count()
        .writeStream.format("noop")
        .outputMode("update")
        .queryName(name)
        .option("checkpointLocation", str(folder / name))
        .trigger(processingTime="100 milliseconds")
        .start()
    )
    with pytest.raises(StreamingQueryException):
        query.awaitTermination(PATIENCE_S)
    return query


def _events(place):
    pushes = [SparkPushIn.model_validate(post.body) for post in place.taken]
    return [event for push in pushes for event in push.events if event.event != "alive"]


def _has_ended(place, count=1):
    return sum(event.event == "terminated" for event in _events(place)) >= count


def test_two_sessions_send_each_event_once_and_what_the_listener_in_python_sends(
    by_setting, listening, spark_session, tmp_path
):
    names = ("orders", "clicks \"of\" 'ü'")
    with receiving() as of_jar, receiving() as of_python:
        settings = {"url": of_jar.url.removesuffix("/hook"), "deployment": "shared", "triggerIntervalMs": 100}
        sessions = [by_setting(listener=CLASS, **settings), by_setting()]
        # An author who adds the listener in the code as well gets no event twice.
        sessions[0]._jsparkSession.streams().addListener(listening(**settings))
        own = BarrierscopeListener(of_python.url.removesuffix("/hook"), deployment="shared", trigger_interval_ms=100)
        for session in sessions:
            session.streams.addListener(own)
        try:
            for session, name in zip(sessions, names, strict=True):
                _failing(session, tmp_path, name)
            for place in (of_jar, of_python):
                until(lambda place=place: _has_ended(place, 2), "the end of both queries")
        finally:
            own.close(1.0)

        assert {post.path for post in of_jar.posts} == {"/api/v1/ingest/spark"}
        heads = [
            {key: value for key, value in place.taken[0].body.items() if key not in ("events", "sent_at")}
            for place in (of_jar, of_python)
        ]
        assert heads[0] == heads[1]
        shown = [
            [
                event.model_dump(exclude=_OF_THE_LISTENER)
                for event in sorted(_events(place), key=lambda e: _order(e, names))
            ]
            for place in (of_jar, of_python)
        ]
        assert shown[0] == shown[1]
        assert [e["event"] for e in shown[0]] == ["started", *["progress"] * _GOOD_BATCHES, "terminated"] * 2
        assert shown[0][-1]["error_class"] == "USER_RAISED_EXCEPTION"


def _order(event, names):
    """Return the sort key of an event: the queries report at the same time."""
    progress = getattr(event, "progress", None)
    kind = ["started", "progress", "terminated"].index(event.event)
    return names.index(event.name if progress is None else progress.name), kind, progress.batch_id if progress else 0


def test_no_answer_disturbs_the_query(listening, spark_session, tmp_path):
    tokens = tmp_path / "token"
    tokens.write_text(f"{_TOKEN}\n")
    with ExitStack() as stack:
        places = {name: stack.enter_context(receiving()) for name in ("good", "late", "denying", "elsewhere", "moving")}
        places["late"].status = 503
        places["denying"].status = 401
        places["moving"].status, places["moving"].location = 307, places["elsewhere"].url
        urls = {name: place.url.removesuffix("/hook") for name, place in places.items() if name != "elsewhere"}
        urls["hanging"], hung = stack.enter_context(_talking(b""))
        urls["dripping"], dripped = stack.enter_context(_talking(b"HTTP/1.1 200 OK\r\nX: ", drips=True))
        urls["nonsense"], _ = stack.enter_context(_talking(b"\x00\xff nonsense\r\n\r\n", ends=True))
        urls["absent"] = "http://127.0.0.1:9"
        urls["broken"] = "ftp://user:secret@127.0.0.1/x?y"
        made = {
            name: listening(url, token_file=tokens, timeoutMs=300, queueSize=3 if name == "absent" else 1000)
            for name, url in urls.items()
        }
        made["tokenless"] = listening(urls["good"], token_file=tmp_path / "none", deployment="tokenless")
        streams = spark_session._jsparkSession.streams()
        for one in made.values():
            streams.addListener(one)
        try:
            query = _failing(spark_session, tmp_path, "tried")
            until(lambda: _has_ended(places["good"]), "the end of the query")
            until(lambda: len(places["late"].posts) > 0, "a request that fails")
            places["late"].status = 200
            assert made["late"].flush(int(PATIENCE_S * 1000))
            until(lambda: len(hung) > 1 and len(dripped) > 1, "further attempts after a timeout")
            until(lambda: places["denying"].posts and places["moving"].posts, "refusals")
        finally:
            for one in made.values():
                streams.removeListener(one)

        progress = [event for event in _events(places["good"]) if event.event == "progress"]
        assert [event.progress.batch_id for event in progress] == list(range(_GOOD_BATCHES))
        assert {p.run_id for p in (event.progress for event in progress)} == {query.runId}
        sent = _GOOD_BATCHES + 2
        until(lambda: made["absent"].droppedCount() >= sent - 3, "drops that are counted")
        counts = {name: (one.sentCount(), one.droppedCount()) for name, one in made.items()}
        assert counts == {
            "good": (sent, 0),
            "late": (sent, 0),
            # These wait for a better answer.
            **dict.fromkeys(("denying", "moving", "hanging", "dripping", "nonsense", "tokenless"), (0, 0)),
            # The queue keeps three events, and the oldest are dropped.
            "absent": (0, sent - 3),
            # Nothing is ever sent to an address that is not valid.
            "broken": (0, sent),
        }
        assert places["good"].posts[0].headers["Authorization"] == f"Bearer {_TOKEN}"
        # The token goes to the configured address only.
        assert places["elsewhere"].posts == []


@contextmanager
def _talking(said, *, drips=False, ends=False):
    """Run a server that sends these bytes as an answer, and yields its address and the list of its connections."""
    server = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()
    connections: list[socket.socket] = []

    def serve():
        while not over.is_set():
            try:
                connection, _ = server.accept()
            except OSError:
                return
            connections.append(connection)
            threading.Thread(target=talk, args=(connection,), daemon=True).start()

    def talk(connection):
        with connection:
            try:
                connection.sendall(said)
                while not ends and not over.wait(0.05):
                    connection.sendall(b"x" if drips else b"")
            except OSError:
                return

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}", connections
    finally:
        over.set()
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(PATIENCE_S)


def test_the_jar_sends_the_same_fields_of_every_recorded_batch(jvm):
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    shortened = jvm.java.lang.Class.forName(f"{CLASS}$Progress", True, loader).getDeclaredMethods()
    shortened = next(m for m in shortened if m.getName() == "shortened" and m.getParameterCount() == 1)
    shortened.setAccessible(True)
    found = [batch for name in NAMES for batch in batches(name)[:3]]
    odd = [
        {"id": "a", "sources": None, "stateOperators": [], "eventTime": None, "sink": None},
        {"id": "a", "eventTime": {}, "sink": [1], "sources": [{"startOffset": {'a "b" \\': [[1, "}"], {}]}}]},
        {"id": "a", "sources": [{"description": "x" * 200, "startOffset": "0" * 120_000, "numInputRows": 1}]},
    ]
    for batch in [*found, *odd]:
        for text in (json.dumps(batch), json.dumps(batch, indent=2)):
            arguments = jvm.java.util.ArrayList()
            arguments.add(text)
            ours = json.loads(shortened.invoke(None, arguments.toArray()))
            assert ours == python_listener._readable({"event": "progress", "progress": text})["progress"]
    assert len(found) > 10
