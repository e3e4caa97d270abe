"""Tests of the fleet board: its order, which rows a window lists, and that its counts count these rows."""

from __future__ import annotations

from collections import Counter
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from backend.domain.observation import JobState
from backend.domain.verdict import Health, VerdictKind
from backend.services.jobs import fleet
from backend.services.jobs.fleet import BoardWindow, FleetService, _Board
from tests.support.api_examples import example

HEALTHS = (Health.HEALTHY, Health.FAILING, Health.SLOW, None)
JOB = example("job")
ROWS = [
    JOB.model_copy(
        update={"id": f"j{n}", "name": f"{word}-{n}", "state": state, "health": health, "labels": {"team": word}}
    )
    for n, (word, state, health) in enumerate(
        product(("orders", "payments"), (JobState.RUNNING, JobState.ENDED), HEALTHS)
    )
]


class StandingClock:
    """A clock that stands still, so that the board is never computed again."""

    def now(self):
        return JOB.observed_at

    def monotonic_s(self):
        return 0.0


@pytest.fixture
def board():
    """Return a board with 16 jobs, which needs no store."""
    found = FleetService(None, StandingClock(), None)
    found._board = _Board(
        at_s=0.0, as_of=JOB.observed_at, rows=ROWS, sources=[JOB.capabilities.source],
        newest_observed_at=JOB.observed_at, version=1, changed_at={row.id: 1 for row in ROWS},
    )  # fmt: skip
    return found


@pytest.mark.parametrize("search", [None, "orders", "team=payments", "nothing"])
@pytest.mark.parametrize("has_ended", [True, False])
@pytest.mark.anyio
async def test_the_counts_are_those_of_the_rows_that_are_listed_under_every_filter(board, search, has_ended):
    windows = [BoardWindow(at, 3, search=search, has_ended=has_ended) for at in range(0, len(ROWS), 3)]
    pages = [await board.window(wanted) for wanted in windows]
    listed = [row for page in pages for row in page.rows]

    for page in pages:
        assert page.total == len(listed) == page.unanalysed_count + sum(page.counts.values())
        assert page.counts == Counter(row.health for row in listed if row.health is not None)
        assert page.sources, "the jobs that the filter hides are known all the same"
    assert has_ended or not [row for row in listed if row.state is JobState.ENDED]


def _row(name: str, health: Health, kind: VerdictKind, debt_ms: float | None = None) -> Any:
    verdict = SimpleNamespace(kind=kind)
    return SimpleNamespace(
        id=name, name=name, state=JobState.RUNNING, health=health, verdict=verdict, replay_debt_ms=debt_ms
    )


def test_within_a_health_class_the_job_whose_failure_costs_most_comes_first():
    minute = 60_000.0
    rows = [
        _row("a", Health.HEALTHY, VerdictKind.NONE, 500 * minute),
        _row("b", Health.FAILING, VerdictKind.CAPACITY, None),
        _row("c", Health.FAILING, VerdictKind.NONE, 35 * minute),
        _row("d", Health.FAILING, VerdictKind.CAPACITY, 2 * minute),
        _row("e", Health.FAILING, VerdictKind.NONE, 600 * minute),
    ]

    assert [r.name for r in sorted(rows, key=fleet._order)] == ["e", "c", "d", "b", "a"]


def test_debts_that_differ_little_do_not_change_the_order_at_each_checkpoint():
    rows = [_row("a", Health.HEALTHY, VerdictKind.NONE, 2_000.0), _row("b", Health.HEALTHY, VerdictKind.NONE, 9_000.0)]

    assert [r.name for r in sorted(rows, key=fleet._order)] == ["a", "b"]


def test_a_snapshot_part_of_healthy_checkpoints_is_not_urgent_and_a_vertex_at_capacity_is():
    rows = [
        _row("a", Health.HEALTHY, VerdictKind.SYNC),
        _row("b", Health.HEALTHY, VerdictKind.NONE),
        _row("c", Health.HEALTHY, VerdictKind.STORE),
        _row("d", Health.HEALTHY, VerdictKind.CAPACITY),
        _row("e", Health.SLOW, VerdictKind.UNDECIDED),
        _row("f", Health.SLOW, VerdictKind.SYNC),
    ]

    assert [row.name for row in sorted(rows, key=fleet._order)] == ["f", "e", "d", "a", "b", "c"]
