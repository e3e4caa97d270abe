"""The role ``spark-demo``: finds Java and runs the demo query, or reports once why the query cannot run.

The role writes its state to the store, from which the API and the pages read it. The query runs even if the store is
down.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import structlog

from backend.cli.database import plain_url
from backend.cli.entry_points import load_role
from backend.cli.role_logging import log_to_stderr
from backend.domain.clock import Clock
from backend.domain.errors import HostError, StoreUnavailableError
from backend.pipeline.java import SparkMissing, find_spark
from backend.settings import Settings, child_environment, load_settings

if TYPE_CHECKING:
    from backend.store.pipeline.run_log import RunLog

_log = structlog.get_logger(__name__)


def spark_demo() -> None:
    """Run a small streaming query on Spark that pushes its progress, as a demo. Ctrl-C stops it."""
    settings = load_settings()
    log_to_stderr(settings.log_level)
    # Below this level, py4j logs every call.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    from backend.store.wall_clock import WallClock

    with _stop_event() as stop:
        run_demo(settings, Notice(_log_url(settings), WallClock()), stop)


class Notice:
    """The recorded state of the demo in the store. Without a store, the methods do nothing."""

    def __init__(self, database_url: str | None, clock: Clock) -> None:
        self._url = database_url
        self._clock = clock

    def running(self) -> None:
        """Record that the query runs."""
        self._schedule(None)

    def unavailable(self, reason: str) -> None:
        """Record that the query does not run, and why."""
        self._schedule(reason)

    def withdraw(self) -> None:
        """Remove the record when the demo is stopped."""
        self._record(lambda run_log, job: run_log.withdraw(job))

    def _schedule(self, reason: str | None) -> None:
        at = self._clock.now()
        self._record(lambda run_log, job: run_log.schedule(at, next_run_at=None, reason=reason, job=job))

    def _record(self, say: Callable[[RunLog, str], None]) -> None:
        if self._url is None:
            return
        # Imported here, because every command imports this module and few commands need a database.
        from backend.store.pipeline.run_log import DEMO_JOB, open_run_log

        try:
            with open_run_log(self._url) as run_log:
                say(run_log, DEMO_JOB)
        except StoreUnavailableError as error:
            _log.warning("the recorded state of the Spark demo may be out of date", reason=error.reason)


def run_demo(settings: Settings, notice: Notice, stop: threading.Event) -> None:
    """Run the query until ``stop`` is set. Without Spark, record the reason and wait for ``stop``.

    Raises:
        HostError: Spark did not start, or the query ended by itself.
    """
    folder = settings.data_dir_or_default()
    spark = find_spark(child_environment(), folder / "java")
    if isinstance(spark, SparkMissing):
        # Missing Spark is not an error: all other parts run, and another attempt would fail too.
        _log.warning("the Spark demo does not run", reason=spark.reason, fix=spark.FIX)
        notice.unavailable(f"{spark.reason}; {spark.FIX}")
        stop.wait()
    else:
        from backend.pipeline.jvm import java_options, jvm_of_this_process

        token = settings.token()
        # The JVM inherits the environment, so our settings must not be in it.
        os.environ.clear()
        os.environ.update(spark.environment)
        scratch = _empty(folder / "spark-demo" / "scratch")
        try:
            with jvm_of_this_process(scratch):
                load_role("spark-demo")(
                    api_url=settings.api_url,
                    token=token,
                    folder=folder / "spark-demo",
                    java_options=java_options(scratch),
                    stop=stop,
                    on_started=notice.running,
                )
        except RuntimeError as error:
            notice.unavailable(f"{error}; the demo restarts")
            raise HostError(str(error), fix="the demo restarts; see its log") from error
    notice.withdraw()


def _empty(folder: Path) -> Path:
    """Create ``folder`` without content. Remove the files that a killed demo left in it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _log_url(settings: Settings) -> str | None:
    if settings.database_url is None:
        return None
    return plain_url(None, settings)


@contextmanager
def _stop_event() -> Iterator[threading.Event]:
    stop = threading.Event()

    def handle(_: int, __: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
