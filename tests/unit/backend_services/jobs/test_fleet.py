"""Tests of the order of the fleet board."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from backend.domain.observation import JobState
from backend.domain.verdict import Health, VerdictKind
from backend.services.jobs import fleet


def _row(name: str, health: Health, kind: VerdictKind) -> Any:
    verdict = SimpleNamespace(kind=kind)
    return SimpleNamespace(id=name, name=name, state=JobState.RUNNING, health=health, verdict=verdict)


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
