"""Tests of what a collector knows about a target's runs when it opens the target."""

from __future__ import annotations

from dataclasses import replace

from backend.domain.ids import TargetId
from backend.domain.observation import JobState, KnownRun
from collectors.role import with_waiting
from tests.support.observations import completed, in_progress, job, observation

TARGET = TargetId("t")


def key_of(run: str) -> tuple[str, object]:
    return job(run=run).engine_run_id, job(run=run).started_at


def test_what_waits_to_be_stored_is_known_too():
    stored = {key_of("a"): KnownRun("orders", 3), key_of("b"): KnownRun("orders", 9), key_of("c"): KnownRun("orders")}
    ended = replace(job(run="b"), state=JobState.ENDED)
    waiting = [
        observation(TARGET, job([completed(4), completed(5), in_progress(6)], run="a"), job(run="c")),
        observation(TARGET, job([completed(2)], run="a")),
        observation(TARGET, ended, job([in_progress(7)], run="a"), job([completed(1)], run="d")),
    ]
    assert with_waiting(stored, waiting) == {
        key_of("a"): KnownRun("orders", 5),
        key_of("c"): KnownRun("orders"),
        key_of("d"): KnownRun("orders", 1),
    }
    assert with_waiting(stored, []) == stored
