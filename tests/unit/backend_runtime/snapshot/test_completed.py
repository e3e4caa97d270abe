"""Tests of a subtask's share of the in-flight cap of the job (CAP-6)."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from backend.runtime.job.config import UNLIMITED
from backend.runtime.snapshot.completed import cap_share_bytes

_A, _B, _C = (0, 0), (0, 1), (1, 0)


def _share(task, persisted=None, *, job=1000, own=UNLIMITED, subtasks=4):
    config = SimpleNamespace(cap_job_bytes=job, cap_bytes=own)
    snapshots = {key: SimpleNamespace(persisted_bytes=n) for key, n in (persisted or {}).items()}
    newest = None if persisted is None else SimpleNamespace(snapshots=snapshots)
    return cap_share_bytes(config, task, subtasks=subtasks, newest=newest)


@pytest.mark.parametrize(
    ("task", "persisted", "share"),
    [
        (_A, None, 250),
        (_A, {_A: 0, _B: 0}, 250),
        (_A, {_A: 300, _B: 100}, (250 + 750) // 2),
        (_B, {_A: 300, _B: 100}, (250 + 250) // 2),
        (_C, {_A: 300, _B: 100}, 125),
    ],
    ids=["no checkpoint yet", "nothing in flight", "the most in flight", "less in flight", "a new subtask"],
)
def test_half_of_the_cap_is_divided_evenly_and_half_by_what_was_in_flight(task, persisted, share):
    assert _share(task, persisted) == share


def test_the_lower_of_the_two_caps_counts():
    assert _share(_A, own=100) == 100
    assert _share(_A, own=300) == 250
    assert _share(_A, job=UNLIMITED, own=300) == 300
    assert _share(_A, job=UNLIMITED) == UNLIMITED
    assert _share(_A, subtasks=0) == 1000
