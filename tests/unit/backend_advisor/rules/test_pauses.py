"""Tests of the minimum pause: whether it decides when checkpoints begin, and whether it is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from backend.advisor.advice import Lint
from backend.domain.advice import LintLevel
from backend.domain.checkpoint import Checkpoint, CheckpointConfig, CheckpointKind
from tests.support.advised_jobs import EXACTLY_ONCE, advised, expired_run
from tests.support.handwritten_jobs import LAST, START, completed, detail

MINUTE = replace(EXACTLY_ONCE, interval_ms=60_000, min_pause_ms=60_000)


def _run(every_s: float, took_ms: int = 55_000, count: int = 9) -> list[Checkpoint]:
    return [completed(n, detail(LAST, first=[took_ms] * 4), every_s=every_s) for n in range(1, count + 1)]


def _found(
    checkpoints: Sequence[Checkpoint], version: str, config: CheckpointConfig = MINUTE, **more: object
) -> dict[str, Lint]:
    given = advised(checkpoints, [], config=config, version=version, **more)
    return {lint.code: lint for lint in given.lints if lint.code.startswith(("min-pause", "FLINK-18856"))}


def test_a_pause_that_is_not_kept_is_told_from_the_checkpoints_and_named_with_the_fault_of_the_version():
    found = _found(_run(56), "1.11.1")

    assert list(found) == ["FLINK-18856"]
    assert found["FLINK-18856"].headline == "The minimum pause of 1 min is not kept"
    assert "8 of 8 checkpoints began 1.0 s (median) after the one before had ended" in found["FLINK-18856"].detail


def test_a_pause_that_is_not_kept_in_another_version_leaves_the_cause_open():
    found = _found(_run(56), "1.20.5")

    assert list(found) == ["min-pause-not-kept"]
    assert "Why is not decided here" in found["min-pause-not-kept"].detail


def test_checkpoints_that_may_overlap_do_not_show_whether_the_pause_is_kept():
    assert "min-pause-not-kept" not in _found(_run(56), "1.20.5", replace(MINUTE, max_concurrent=2))


@pytest.mark.parametrize("version", ["1.11.1", "1.20.5"])
def test_a_pause_that_is_kept_is_not_reported_as_broken(version):
    found = _found(_run(116), version)

    assert "min-pause-not-kept" not in found
    if "FLINK-18856" in found:
        assert "the pause of 1 min was kept" in found["FLINK-18856"].detail
        assert found["FLINK-18856"].level is LintLevel.NOTE


def test_a_pause_above_the_interval_that_is_not_kept_does_not_decide():
    longer = replace(MINUTE, interval_ms=5_000)

    assert list(_found(_run(56), "1.20.5", longer)) == ["min-pause-not-kept"]
    assert list(_found(_run(116), "1.20.5", longer)) == ["min-pause-decides"]


def test_two_short_pauses_are_no_pattern():
    run = _run(116)
    moved = [replace(c, header=replace(c.header, triggered_at=_earlier(c, 59))) for c in run[-1:]]

    assert "min-pause-not-kept" not in _found([*run[:-1], *moved], "1.20.5")


def _earlier(checkpoint: Checkpoint, seconds: int):
    return checkpoint.header.triggered_at - timedelta(seconds=seconds)


def test_pauses_after_failures_savepoints_and_restarts_do_not_count():
    # Flink does not wait after a failed checkpoint, and a savepoint begins when it is asked for.
    assert "min-pause-not-kept" not in _found(expired_run(after_ms=3_000), "1.20.5")
    saved = [replace(c, header=replace(c.header, kind=CheckpointKind.SAVEPOINT)) for c in _run(56)]
    assert "min-pause-not-kept" not in _found(saved, "1.20.5")
    at_each = tuple((START + timedelta(seconds=56 * n - 1), "java.lang.Exception: lost") for n in range(1, 10))
    assert "min-pause-not-kept" not in _found(_run(56), "1.20.5", exceptions=at_each)
