"""Fixtures and settings for every kind of test."""

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

# No deadline for an example, because its duration depends on the load of the machine.
settings.register_profile("any-load", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-load")


# Fixtures that take longer to start than most files take to run, and that load the machine while they exist.
_SHARED = ("spark_session", "live_up")


class _FilesTogether(LoadFileScheduling):
    """Runs the tests of a file in one process, and all files that use the same fixture of ``_SHARED`` in one process.

    Each process makes a fixture once. (Group marks do not reach xdist 3.8 under pytest 9.2.)
    """

    def _split_scope(self, nodeid: str) -> str:
        return _group(nodeid.split("::", 1)[0])


@cache
def _group(path: str) -> str:
    text = (Path(__file__).parents[1] / path).read_text()
    return next((name for name in _SHARED if name in text), path)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """Use ``_FilesTogether`` for ``--dist loadfile`` (``make test``), and xdist's schedulers for the other modes."""
    return _FilesTogether(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """Restore logging after a test: a role started in it configures logging to a stream that ends with the test."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)
    structlog.reset_defaults()
