"""Fixtures and settings every kind of test may use."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import settings

# How long one example takes is the machine's doing, not the code's.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With several processes (``--dist loadgroup``) a file stays in one, for its fixtures are made once a process.

    All that needs the Spark session stays in one as well: it takes longer to start than anything else.
    """
    with_spark = {item.path for item in items if "spark_session" in getattr(item, "fixturenames", ())}
    for item in items:
        item.add_marker(pytest.mark.xdist_group("spark" if item.path in with_spark else str(item.path)))


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
