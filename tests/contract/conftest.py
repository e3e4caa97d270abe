"""Fixtures for contract tests: a real PostgreSQL with one database for each test, and ``diagnose`` without pauses.

The process that distributes the tests reads this file too, and runs none of them. It would wait for the imports of the
product before it starts the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.databases import Databases


@pytest.fixture(scope="session")
def databases(pytestconfig: pytest.Config) -> Databases:
    from tests.support.databases import shared_databases

    return shared_databases(pytestconfig)


@pytest.fixture
def database(databases: Databases) -> Iterator[str]:
    with databases.migrated() as url:
        yield url


@pytest.fixture
def diagnose_without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    from collectors import diagnose, pacing
    from collectors.flink import requests
    from tests.support.skipping_clock import SkippingClock

    monkeypatch.setattr(diagnose, "WallClock", SkippingClock)
    monkeypatch.setattr(pacing, "PER_SECOND_MAX", 1_000_000)
    monkeypatch.setattr(requests, "_PAUSES_S", (0.0, 0.0))
