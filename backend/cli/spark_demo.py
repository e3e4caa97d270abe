"""The role ``spark-demo``: finds the Java for it and runs the demo query, or says once why it cannot."""

from __future__ import annotations

import logging
import os
import signal
import threading
from types import FrameType

import structlog

from backend.cli.role_logging import log_to_stderr
from backend.cli.roles import load_role
from backend.domain.errors import HostError
from backend.pipeline.java import SparkMissing, find_spark
from backend.settings import child_environment, load_settings

_log = structlog.get_logger(__name__)


def spark_demo() -> None:
    """Run a small streaming query on Spark that tells of itself, as a demo. Ctrl-C stops it."""
    settings = load_settings()
    log_to_stderr(settings.log_level)
    # py4j tells of every call.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    stop = _stop_event()
    folder = settings.data_dir_or_default()
    found = find_spark(child_environment(), folder / "java")
    if isinstance(found, SparkMissing):
        # Not an error, and nothing that another try would mend: everything else runs.
        _log.warning("there is no Spark demo", reason=found.reason, fix=found.FIX)
        stop.wait()
        return
    os.environ.update(found.environment)
    token = settings.api_token
    try:
        load_role("spark-demo")(
            api_url=settings.api_url,
            token=None if token is None else token.get_secret_value(),
            folder=folder / "spark-demo",
            stop=stop,
        )
    except RuntimeError as error:
        raise HostError(str(error), fix="it is started again; its log says more") from error


def _stop_event() -> threading.Event:
    stop = threading.Event()

    def handle(_: int, __: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)
    return stop
