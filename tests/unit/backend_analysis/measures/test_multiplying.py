"""Tests of state that each restart multiplies, told apart from state that grows with the input or with one restart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from backend.analysis.measures import multiplying
from backend.analysis.measures.evidence import JobEvidence
from backend.domain.checkpoint import CheckpointKind, VertexDetail
from tests.support.handwritten_jobs import LAST, MIDDLE, START, completed, detail, job

LOST = "java.lang.Exception: TaskManager lost"


def _job(periods: Sequence[Sequence[int]], subtasks: int = 4, **more: object) -> JobEvidence:
    """Return a job whose middle vertex has these sizes of state at each subtask, with a restart between the periods."""
    rows, restarts, number = [], [], 0
    for sizes in periods:
        for size in sizes:
            number += 1
            middle = detail(MIDDLE, first=[5] * subtasks, size_bytes=size)
            rows.append(completed(number, middle, detail(LAST, first=[5] * subtasks, size_bytes=2_000_000)))
        restarts.append((START + timedelta(seconds=5 * number + 2), LOST))
    return job(rows, **{"exceptions": tuple(restarts[:-1]), **more})


def _without_first(one: VertexDetail) -> VertexDetail:
    return replace(one, full_state_size_bytes=(None, *one.full_state_size_bytes[1:]))


UNION = ((30_000,) * 3, (120_000,) * 3, (480_000,) * 3)


def test_state_that_each_restart_multiplies_by_the_number_of_subtasks_is_found():
    found = multiplying.of_job(_job(UNION))

    assert found is not None
    assert (found.vertex_id, found.subtask_count, found.factors) == (MIDDLE, 4, (4.0, 4.0))
    assert found.is_by_parallelism


@pytest.mark.parametrize(("subtasks", "is_union"), [(4, True), (5, True), (16, False)])
def test_another_factor_than_the_number_of_subtasks_is_found_but_not_called_union_state(subtasks, is_union):
    found = multiplying.of_job(_job(UNION, subtasks))

    assert found is not None
    assert found.is_by_parallelism is is_union


def test_one_restart_that_multiplies_the_state_by_the_number_of_subtasks_is_found_and_decides_nothing():
    found = multiplying.of_job(_job(UNION[1:]))

    assert found is not None
    assert (found.vertex_id, found.factors, found.is_decided) == (MIDDLE, (4.0,), False)
    decided = multiplying.of_job(_job(UNION))
    assert decided is not None
    assert decided.is_decided
    assert multiplying.of_job(_job(((400_000,) * 3, (800_000,) * 3), subtasks=2)) is None, "the input may double it"


@pytest.mark.parametrize(
    "periods",
    [
        # One restart, with another factor than the number of subtasks, or with a size that is known once.
        ((160_000,) * 3, (480_000,) * 3),
        ((30_000,) * 3, (480_000,) * 3),
        ((120_000,), (480_000,) * 3),
        ((30_000, 60_000, 120_000), (480_000,) * 3),
        # The state grows between the restarts.
        ((30_000, 60_000, 120_000), (240_000, 480_000, 960_000), (2_000_000, 4_000_000, 8_000_000)),
        # Each restart doubles it, which the input may do.
        ((120_000,) * 3, (240_000,) * 3, (480_000,) * 3),
        # The size stays, or was larger before.
        ((480_000,) * 3,) * 3,
        (UNION[2], UNION[0], UNION[1]),
        # The factors differ.
        ((4_000,) * 3, (12_000,) * 3, (1_200_000,) * 3),
        # It is too small to matter.
        ((300,) * 3, (1_200,) * 3, (4_800,) * 3),
        # Each size is known once only, so the growth may be steady.
        ((30_000,), (120_000,), (480_000,)),
    ],
)
def test_other_growth_is_not_taken_for_it(periods):
    assert multiplying.of_job(_job(periods)) is None


def test_without_restarts_or_sizes_of_all_subtasks_nothing_is_said():
    assert multiplying.of_job(_job(UNION, exceptions=())) is None
    evidence = _job(UNION)
    bare = tuple(replace(c, details=()) for c in evidence.checkpoints)
    saved = tuple(replace(c, header=replace(c.header, kind=CheckpointKind.SAVEPOINT)) for c in evidence.checkpoints)
    partly = tuple(replace(c, details=tuple(_without_first(d) for d in c.details)) for c in evidence.checkpoints)
    for checkpoints in (bare, saved, partly):
        assert multiplying.of_job(replace(evidence, checkpoints=checkpoints)) is None
