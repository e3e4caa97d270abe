"""Fixtures and Hypothesis settings that all kinds of tests share."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

# Hypothesis sets no deadline for an example, because the duration of an example depends on the load of the machine.
settings.register_profile("any-load", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-load")


# Fixtures whose start takes longer than the tests of most files. They also load the machine while they exist.
_SHARED = ("live_up", "spark_session")


class _FilesTogether(LoadFileScheduling):
    """Runs all tests of a file in one process, and all files that use a fixture of ``_SHARED`` in one process.

    Such a fixture is therefore created only once. Group marks would do the same, but xdist 3.8 ignores them under
    pytest 9.2.
    """

    def _split_scope(self, nodeid: str) -> str:
        return _group(nodeid.split("::", 1)[0])


@cache
def _group(path: str) -> str:
    text = (Path(__file__).parents[1] / path).read_text()
    return next((name for name in _SHARED if name in text), path)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """Use ``_FilesTogether`` for ``--dist loadfile`` (``make test``), and a scheduler of xdist for every other mode."""
    return _FilesTogether(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files that use a fixture of ``_SHARED`` first.

    Each group of them takes minutes in one process, and mostly waits. The other processes run the rest meanwhile.
    """
    items.sort(key=lambda item: _rank(item.nodeid.split("::", 1)[0]))


def _rank(path: str) -> int:
    group = _group(path)
    return _SHARED.index(group) if group in _SHARED else len(_SHARED)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without garbage collection, which took a quarter of the time.

    What is imported and collected stays until the end, so there is nothing to find in it.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Exclude the collected tests from garbage collection, and let it run less often.

    A process of the whole suite holds millions of objects (tests, modules, results of fixtures). Python would look
    through all of them again and again while a test makes many objects, which took three times the time of the test.
    The garbage of the collection is excluded too, because finding it takes longer than it is worth.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 200)


@pytest.fixture(scope="session", autouse=True)
def _priority_as_it_was() -> Iterator[None]:
    """Keep the priority of this process, because it cannot be raised again.

    Commands that compute for long lower it. A test that calls such a command would make all later tests of its process
    wait for every other process of the machine.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "nice", lambda increment: increment)
        yield


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """Restore the logging configuration after each test.

    A role that a test starts configures logging to a stream, and this stream is closed after the test.
    """
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)
    structlog.reset_defaults()
