"""Reports each micro-batch of a PySpark Structured Streaming job to Barrierscope. Copy this one file next to your job.

    from barrierscope_listener import BarrierscopeListener   # or: from collectors.spark.listener import ...

    token = os.environ["BARRIERSCOPE_API_TOKEN"]
    spark.streams.addListener(BarrierscopeListener("http://barrierscope:8050", token=token))

Add the listener before the queries start. It needs only the standard library and pyspark, no other file of
Barrierscope.

Invariants: no call by Spark waits for the network or gets an exception from this module. The queue of events is
limited in number and in bytes. If it is full, the oldest events are dropped, and their number is sent and logged. The
token is sent only to the configured address and is never logged. Acknowledged events are not sent again. Events that
were not acknowledged are sent again, and the server ignores repeated events.
"""

from __future__ import annotations

import atexit
import json
import logging
import random
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.parse import urlsplit

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

__all__ = ["BarrierscopeListener"]

_PATH = "/api/v1/ingest/spark"
# The server accepts at most 256 KiB per request.
_BODY_MAX_BYTES = 200_000
_EVENT_MAX_BYTES = 100_000
_QUEUE_MAX_BYTES = 8_000_000
_EVENTS_AT_ONCE = 200
_EXCEPTION_MAX = 8_000
_NAME_MAX = 1_000
_ALIVE_EVERY_S = 10.0
_BACK_OFF_FIRST_S = 1.0
_BACK_OFF_MOST_S = 60.0
_LOG_EVERY_S = 60.0
_FLUSH_S = 3.0
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
# Only these fields of a progress object leave the driver. Observed metrics and the sink's metrics are not sent.
_PROGRESS_KEYS = (
    "id", "runId", "name", "timestamp", "batchId", "batchDuration", "durationMs", "numInputRows",
    "processedRowsPerSecond",
)  # fmt: skip
_OPERATOR_KEYS = (
    "operatorName", "numRowsTotal", "numRowsUpdated", "numRowsRemoved", "numRowsDroppedByWatermark", "commitTimeMs",
    "memoryUsedBytes", "numStateStoreInstances", "customMetrics",
)  # fmt: skip
_SOURCE_KEYS = ("description", "startOffset", "endOffset", "latestOffset", "numInputRows")
_OFFSET_KEYS = ("startOffset", "endOffset", "latestOffset")

_log = logging.getLogger("barrierscope.listener")


class BarrierscopeListener(StreamingQueryListener):
    """Sends Spark's events about its queries to Barrierscope, from a thread of its own.

    Args:
        url: The address of Barrierscope: ``http://host:8050``.
        token: The API token of Barrierscope, needed if it listens beyond loopback.
        deployment: Identifies the job together with the query's name, so it must stay the same over restarts. By
            default the name of the Spark application.
        trigger_interval_ms: The interval of the queries' trigger, which Spark does not report. If it is omitted,
            Barrierscope infers it from the pauses between batches, if there are any.
        queue_size: The maximum number of events that wait while Barrierscope does not answer.
        timeout_s: The maximum time of one request.

    If the address is invalid, this is logged once and nothing is sent, since a listener must not prevent a job from
    starting.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        deployment: str | None = None,
        trigger_interval_ms: int | None = None,
        queue_size: int = 1000,
        timeout_s: float = 5.0,
    ) -> None:
        super().__init__()
        self._head = {
            "deployment": (deployment or _application_name())[:200],
            "spark_version": pyspark.__version__,
            "trigger_interval_ms": trigger_interval_ms,
        }
        self._runs: dict[str, dict[str, Any]] = {}
        self._sender = _Sender(url, token, self._head, self._alive, queue_size=queue_size, timeout_s=timeout_s)
        atexit.register(self.close)

    @property
    def dropped_count(self) -> int:
        """Number of events that were dropped and will never be sent."""
        return self._sender.dropped_count

    @property
    def sent_count(self) -> int:
        """Number of events that the server acknowledged."""
        return self._sender.sent_count

    def flush(self, timeout_s: float = _FLUSH_S) -> bool:
        """Wait up to ``timeout_s`` until all events so far are sent; return whether all were sent."""
        return self._sender.flush(timeout_s)

    def close(self, timeout_s: float = _FLUSH_S) -> None:
        """Send the remaining events within ``timeout_s``, and stop.

        This is called automatically when the driver exits.
        """
        self._sender.close(timeout_s)

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  Spark's names
        """Queue the event of a query's start. Spark's ``start()`` waits until this method returns."""
        self._guarded(self._started, event)

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Queue the event of a finished micro-batch."""
        self._guarded(self._progress, event)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Queue the event of a query that had no new data for a while."""
        self._guarded(self._idle, event)

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Queue the event of a query's end: it ended by itself, was stopped, or failed."""
        self._guarded(self._terminated, event)

    def _guarded(self, take: Any, event: Any) -> None:
        try:
            take(event)
        except Exception as error:  # noqa: BLE001  the boundary to Spark: no exception of ours may reach its bus
            self._sender.drop(1)
            _log.debug("an event of Spark could not be read: %s", type(error).__name__)

    def _started(self, event: Any) -> None:
        known = {"id": str(event.id), "run_id": str(event.runId), "name": _cut(event.name, _NAME_MAX)}
        self._runs[known["run_id"] or ""] = {**known, "context": _context()}
        self._sender.put({"event": "started", "seen_at": _now(), **known, "timestamp": event.timestamp})

    def _progress(self, event: Any) -> None:
        progress = event.progress
        run_id, name = str(progress.runId), _cut(progress.name, _NAME_MAX)
        new = {"id": str(progress.id), "run_id": run_id, "name": name, "context": _context()}
        run = self._runs.setdefault(run_id, new)
        run["last_batch_id"] = progress.batchId
        run["last_batch_ended_at"] = _later(progress.timestamp, progress.batchDuration)
        # Before Spark 4.0 the JSON has no duration.
        sent = {"progress": progress.json, "batch_duration": progress.batchDuration}
        self._sender.put({"event": "progress", "seen_at": _now(), **sent})

    def _idle(self, event: Any) -> None:
        known = self._runs.get(str(event.runId), {})
        ids = {"id": str(event.id), "run_id": str(event.runId), "name": known.get("name")}
        self._sender.put({"event": "idle", "seen_at": _now(), **ids, "timestamp": event.timestamp})

    def _terminated(self, event: Any) -> None:
        error_class = _cut(getattr(event, "errorClassOnException", None), _NAME_MAX)
        self._end(str(event.id), str(event.runId), _cut(event.exception, _EXCEPTION_MAX), error_class)

    def _end(self, query_id: str, run_id: str, exception: str | None, error_class: str | None) -> None:
        known = self._runs.pop(run_id, {})
        ended = {
            "event": "terminated",
            "seen_at": _now(),
            "id": query_id,
            "run_id": run_id,
            "name": known.get("name"),
            "exception": exception,
            "error_class": error_class,
            "last_batch_id": known.get("last_batch_id"),
            "last_batch_ended_at": known.get("last_batch_ended_at"),
        }
        self._sender.put(ended)

    def _alive(self) -> list[dict[str, Any]]:
        """Return one event for each running query.

        The events show the server that the driver is alive, even if a batch takes minutes. If the application is
        stopped and the process continues, as in a notebook, Spark does not report the end of its queries.
        """
        context = _context()
        for run in list(self._runs.values()):
            if run["context"] is not None and run["context"] is not context:
                self._end(run["id"], run["run_id"], None, None)
        runs = list(self._runs.values())
        return [
            {"event": "alive", "seen_at": _now(), "id": r["id"], "run_id": r["run_id"], "name": r["name"]} for r in runs
        ]


class _Sender:
    """Holds the queue of events and the thread that sends them."""

    def __init__(
        self, url: str, token: str | None, head: dict[str, Any], alive: Any, *, queue_size: int, timeout_s: float
    ) -> None:
        self.dropped_count = 0
        self.sent_count = 0
        self._head = head
        self._alive = alive
        self._timeout_s = timeout_s
        self._queue_size = max(1, queue_size)
        self._queue: deque[tuple[dict[str, Any], int]] = deque()
        self._queued_bytes = 0
        self._sending = 0
        self._at_once = _EVENTS_AT_ONCE
        self._is_closing = False
        self._give_up_at_s: float | None = None
        self._alive_due_s = time.monotonic() + _ALIVE_EVERY_S
        self._failed_count = 0
        self._logged_at_s = float("-inf")
        # The condition's lock guards all fields. It is never held during a request.
        self._changed = threading.Condition()
        self._request, self._open = _request_of(url, token)
        self._thread: threading.Thread | None = None

    def put(self, event: dict[str, Any]) -> None:
        """Queue one event. If the queue is full, drop the oldest event."""
        size = sum(len(v) for v in event.values() if isinstance(v, str)) + 200
        with self._changed:
            if self._is_closing or self._request is None:
                self.dropped_count += 1
                return
            self._queue.append((event, size))
            self._queued_bytes += size
            self._shrink()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="barrierscope-listener", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def drop(self, count: int) -> None:
        """Add ``count`` events, which could not be queued, to the number of dropped events."""
        with self._changed:
            self.dropped_count += count

    def flush(self, timeout_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not self._queue and not self._sending, timeout_s)

    def close(self, timeout_s: float) -> None:
        with self._changed:
            self._is_closing = True
            self._give_up_at_s = time.monotonic() + timeout_s
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_s)

    def _shrink(self) -> None:
        while len(self._queue) > self._queue_size or self._queued_bytes > _QUEUE_MAX_BYTES:
            _, size = self._queue.popleft()
            self._queued_bytes -= size
            self.dropped_count += 1

    def _run(self) -> None:
        while True:
            try:
                if not self._turn():
                    return
            except Exception as error:  # noqa: BLE001  the top of the thread: it must survive unexpected errors
                _log.warning("Barrierscope's listener had an unexpected error: %s", type(error).__name__)
                self._back_off()

    def _turn(self) -> bool:
        """Wait for events and send them once. Return False once the listener is closed and has nothing more to send."""
        with self._changed:
            wait_s = max(0.0, self._alive_due_s - time.monotonic())
            self._changed.wait_for(lambda: self._queue or self._is_closing, wait_s)
            if self._is_closing and (not self._queue or time.monotonic() >= (self._give_up_at_s or 0.0)):
                self.dropped_count += len(self._queue)
                self._queue.clear()
                self._changed.notify_all()
                return False
            taken = self._take()
            self._sending = len(taken)
        # These events are also sent while another query sends many events, because a query may be in a batch that
        # takes minutes.
        alive = self._alive() if time.monotonic() >= self._alive_due_s else []
        if taken:
            self._send(taken, alive)
        elif alive:
            self._post(alive)
        if alive or not taken:
            self._alive_due_s = time.monotonic() + _ALIVE_EVERY_S
        return True

    def _take(self) -> list[tuple[dict[str, Any], int]]:
        taken: list[tuple[dict[str, Any], int]] = []
        total = 0
        while self._queue and len(taken) < self._at_once and (not taken or total + self._queue[0][1] < _BODY_MAX_BYTES):
            taken.append(self._queue.popleft())
            total += taken[-1][1]
        self._queued_bytes -= total
        return taken

    def _send(self, taken: list[tuple[dict[str, Any], int]], alive: list[dict[str, Any]]) -> None:
        events = [readable for event, _ in taken if (readable := _readable(event)) is not None]
        status = self._post(events + alive) if events else 200
        is_taken = status is not None and 200 <= status < 300
        is_refused = status in (400, 409, 413, 422)
        with self._changed:
            self._sending = 0
            if is_taken:
                self.sent_count += len(events)
                self.dropped_count += len(taken) - len(events)
                self._at_once = min(_EVENTS_AT_ONCE, 2 * self._at_once)
            elif is_refused and len(taken) > 1 and status != 409:
                # At least one of the events is invalid. Send them one by one, so that only invalid events are
                # dropped.
                self._at_once = 1
                self._give_back(taken)
            elif is_refused:
                self.dropped_count += len(taken)
            else:
                self._give_back(taken)
            self._changed.notify_all()
        if not is_taken and not is_refused:
            self._back_off()

    def _give_back(self, taken: list[tuple[dict[str, Any], int]]) -> None:
        self._queue.extendleft(reversed(taken))
        self._queued_bytes += sum(size for _, size in taken)
        self._shrink()

    def _post(self, events: list[dict[str, Any]]) -> int | None:
        """Send events. Return the HTTP status, or None if the server did not answer."""
        if self._request is None:
            return None
        body = {**self._head, "sent_at": _now(), "dropped_count": self.dropped_count, "events": events}
        request = urllib.request.Request(  # noqa: S310  http or https, checked at the start
            self._request.full_url, _encoded(body), dict(self._request.headers), method="POST"
        )
        timeout_s = self._timeout_s
        if self._give_up_at_s is not None:
            timeout_s = max(0.1, min(timeout_s, self._give_up_at_s - time.monotonic()))
        try:
            with self._open(request, timeout=timeout_s) as answer:
                answer.read(65_536)
                status = int(answer.status)
        except urllib.error.HTTPError as error:
            status = error.code
            self._log_refusal(f"HTTP {status}")
            error.close()
            return status
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            self._log_refusal(type(reason).__name__)
            return None
        if self._failed_count:
            _log.warning("Barrierscope answers again; %d events were dropped so far", self.dropped_count)
        self._failed_count = 0
        return status

    def _log_refusal(self, reason: str) -> None:
        """Log that the server did not accept events: at the first failure, then at most once every ``_LOG_EVERY_S``."""
        self._failed_count += 1
        now_s = time.monotonic()
        if now_s - self._logged_at_s >= _LOG_EVERY_S:
            self._logged_at_s = now_s
            waiting, lost = len(self._queue), self.dropped_count
            _log.warning(
                "Barrierscope did not take events (%s): %d wait, %d were dropped; the query continues",
                reason, waiting, lost,
            )  # fmt: skip

    def _back_off(self) -> None:
        pause_s = min(_BACK_OFF_MOST_S, _BACK_OFF_FIRST_S * 2 ** min(10, max(0, self._failed_count - 1)))
        with self._changed:
            # The pause is random, so that many drivers do not retry at the same time.
            self._changed.wait_for(lambda: self._is_closing, pause_s * random.uniform(0.7, 1.3))  # noqa: S311
            if self._is_closing:
                # The listener closes while the server is unreachable: make no further attempt.
                self._give_up_at_s = 0.0


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, so that the token is sent only to the configured address."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _request_of(url: str, token: str | None) -> tuple[urllib.request.Request | None, Any]:
    """Return the request for posting events and the function that sends it, or (None, None) if ``url`` is not valid."""
    try:
        parts = urlsplit(url.strip())
        host = parts.hostname
        if parts.scheme not in ("http", "https") or not host or parts.username or parts.query or parts.fragment:
            raise ValueError("http:// or https:// with a host is needed")
        headers = {"Content-Type": "application/json", "User-Agent": "barrierscope-listener"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        request = urllib.request.Request(  # noqa: S310
            f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}{_PATH}", headers=headers
        )
    except (ValueError, AttributeError) as error:
        _log.error("Barrierscope's address is not valid (%s): nothing is sent, the query continues", error)
        return None, None
    if token and parts.scheme == "http" and host not in _LOOPBACK:
        _log.warning("the token goes to %s unencrypted: use https", host)
    handlers: list[Any] = [_NoRedirect()]
    if host in _LOOPBACK:
        handlers.append(urllib.request.ProxyHandler({}))
    return request, urllib.request.build_opener(*handlers).open


def _encoded(body: dict[str, Any]) -> bytes:
    # A surrogate without its partner is not valid in UTF-8, and the API would refuse the whole body because of it.
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")


def _readable(event: dict[str, Any]) -> dict[str, Any] | None:
    """Return the event to send, or None if it cannot be read.

    Of a progress event, only the needed fields are sent; if it is too large, its offsets are left out.
    """
    if event["event"] != "progress":
        return event
    try:
        document = json.loads(event["progress"])
        if event.get("batch_duration") is not None:
            document.setdefault("batchDuration", event["batch_duration"])
        progress = _picked(document, _PROGRESS_KEYS)
        watermark = (document.get("eventTime") or {}).get("watermark")
        if watermark is not None:
            progress["eventTime"] = {"watermark": watermark}
        progress["stateOperators"] = [_picked(o, _OPERATOR_KEYS) for o in document.get("stateOperators") or ()]
        progress["sources"] = [_picked(s, _SOURCE_KEYS) for s in document.get("sources") or ()]
        if isinstance(document.get("sink"), dict):
            progress["sink"] = _picked(document["sink"], ("description",))
        if len(json.dumps(progress)) > _EVENT_MAX_BYTES:
            for source in progress["sources"]:
                source.update(dict.fromkeys(_OFFSET_KEYS))
        return {key: value for key, value in event.items() if key != "batch_duration"} | {"progress": progress}
    except (ValueError, TypeError, AttributeError):
        return None


def _picked(found: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: found[key] for key in keys if key in found}


def _application_name() -> str:
    try:
        session = SparkSession.getActiveSession()
        name = None if session is None else session.conf.get("spark.app.name", None)
    except Exception:  # noqa: BLE001  any error of Spark here must not prevent the job from starting
        name = None
    return name or "spark"


def _context() -> Any:
    """Return the Spark application that runs in this process, or None: there is none, or it is not known."""
    return getattr(getattr(pyspark, "SparkContext", None), "_active_spark_context", None)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat()  # noqa: UP017, TID251  this file runs alone, on older Pythons too


def _later(timestamp: str, duration_ms: Any) -> str | None:
    try:
        began_at = datetime.fromisoformat(timestamp.replace("Z", "+00:00"))
        return (began_at + timedelta(milliseconds=int(duration_ms or 0))).isoformat()
    except (ValueError, TypeError):
        return None


def _cut(text: Any, most: int) -> str | None:
    return None if text is None else str(text)[:most]
