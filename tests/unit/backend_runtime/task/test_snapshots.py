"""Tests of the end of a write: whether its files are kept, and whether the checkpoint is given up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from backend.domain.failure import FailureReason
from backend.runtime.task.snapshots import Snapshots


def _task(*, keeps_writing: bool, is_dead: bool = False) -> Any:
    ended: list[tuple[list[str], bool]] = []
    increments = SimpleNamespace(
        keeps_writing=keeps_writing, ended=lambda pieces, *, is_durable: ended.append((pieces, is_durable))
    )
    return SimpleNamespace(env=SimpleNamespace(), increments=increments, is_dead=is_dead, seen=ended)


@pytest.mark.parametrize(
    ("keeps_writing", "is_dead", "is_over", "ended", "given_up"),
    [
        # The files of a log belong to no checkpoint, so those that could not be written are written again.
        (True, False, False, [(["a"], False)], [3]),
        (True, False, True, [(["a"], False)], []),
        # Otherwise the files end with the checkpoint.
        (False, False, False, [], [3]),
        (False, False, True, [], []),
        (True, True, False, [], []),
    ],
)
def test_files_that_could_not_be_written_are_not_durable(keeps_writing, is_dead, is_over, ended, given_up):
    task, failed = _task(keeps_writing=keeps_writing, is_dead=is_dead), []
    snapshots = Snapshots(task, lambda checkpoint_id, reason: failed.append((checkpoint_id, reason)), SimpleNamespace())  # type: ignore[arg-type, func-returns-value]
    run: Any = SimpleNamespace(is_over=is_over, measured=SimpleNamespace(checkpoint_id=3))

    snapshots._not_written(run, ["a"], None)  # type: ignore[list-item]

    assert task.seen == ended
    assert failed == [(number, FailureReason.ASYNC_FAILURE) for number in given_up]
