"""Fixtures and settings every kind of test may use."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

# The machine's load, and not the code, decides how long an example takes.
settings.register_profile("any-load", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-load")


# Fixtures that take longer to start than most files to run, and that load the machine as long as they live.
_SHARED = ("spark_session", "live_up")


class _FilesTogether(LoadFileScheduling):
    """A file stays in one process, for its fixtures are made once a process; so do all that need one of ``_SHARED``.

    (Marks for groups do not reach xdist 3.8 under pytest 9.2.)
    """

    def _split_scope(self, nodeid: str) -> str:
        return _group(nodeid.split("::", 1)[0])


@cache
def _group(path: str) -> str:
    text = (Path(__file__).parents[1] / path).read_text()
    return next((name for name in _SHARED if name in text), path)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """With ``--dist loadfile`` (``make test``); other ways to share the tests out are xdist's own."""
    return _FilesTogether(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """A role that is started in a test sets logging up, to a stream that ends with the test."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)
    structlog.reset_defaults()
