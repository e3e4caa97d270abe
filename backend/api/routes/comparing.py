"""The routes that compare checkpoints."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Depends, Query

from backend.api import examples
from backend.api.deps import Given, Instant, JobId
from backend.contracts.comparing import CheckpointComparisonOut
from backend.contracts.comparing_windows import WindowsComparisonOut
from backend.domain.checkpoint import SubtaskMeasure
from backend.domain.errors import FieldProblem, InvalidInputError
from backend.services.checkpoints.comparing_windows import Window, around
from backend.services.checkpoints.reader import CheckpointKey

router = APIRouter(prefix="/jobs/{job}", tags=["comparisons"])

# At most 18 digits, so that the number fits into an integer of the store.
_ONE = r"^[^\x00]{1,100}:[0-9]{1,18}$"
First = Annotated[
    str,
    Query(
        max_length=119, pattern=_ONE, description="A checkpoint: `run:checkpoint`.", examples=["r5b1d2c3e4f5a6b78:412"]
    ),
]
Second = Annotated[
    str | None,
    Query(max_length=119, pattern=_ONE, description="The other checkpoint; absent for the last healthy one before."),
]
Opened = Annotated[
    str | None, Query(max_length=200, pattern=r"^[^\x00]*$", description="Also compare the subtasks of this vertex.")
]
Subtasks = Annotated[int, Query(ge=1, le=100, description="Number of subtasks of the vertex.")]


def _key(job: str, one: str) -> CheckpointKey:
    run, _, number = one.rpartition(":")
    return CheckpointKey(job, run, int(number))


@router.get("/compare", responses=examples.of("checkpoint_comparison"))
async def compare_checkpoints(
    job: JobId,
    services: Given,
    a: First,
    b: Second = None,
    vertex: Opened = None,
    measure: SubtaskMeasure = SubtaskMeasure.DURATION,
    limit: Subtasks = 20,
) -> CheckpointComparisonOut:
    """Compare two checkpoints: what differs most, phases by vertex, bytes, settings and load.

    Without ``b``, the checkpoint is compared with the last healthy one before it. With ``vertex``, the response also
    has the subtasks of this vertex that differ most in ``measure``.
    """
    second = None if b is None else _key(job, b)
    return await services.comparison.of(_key(job, a), second, vertex_id=vertex, measure=measure, limit=limit)


_WIDTH_MAX_S = 200 * 86_400
Width = Annotated[int, Query(ge=60, le=_WIDTH_MAX_S, description="Length of the windows before and after `at`.")]


def _windows(
    at: Annotated[
        Instant | None, Query(description="Compare the time before this instant with the time after.")
    ] = None,
    width_s: Width = 3600,
    before_from: Annotated[Instant | None, Query(description="Begin of the first window, included.")] = None,
    before_to: Annotated[Instant | None, Query(description="End of the first window, excluded.")] = None,
    after_from: Annotated[Instant | None, Query(description="Begin of the second window, included.")] = None,
    after_to: Annotated[Instant | None, Query(description="End of the second window, excluded.")] = None,
) -> tuple[Window, Window]:
    """Return the windows that a request names: around ``at``, or by all four ends.

    Raises:
        InvalidInputError: the request names neither, or both.
    """
    ends: dict[str, datetime | None] = {
        "before_from": before_from, "before_to": before_to, "after_from": after_from, "after_to": after_to,
    }  # fmt: skip
    given = [name for name, end in ends.items() if end is not None]
    if at is not None and not given:
        return around(at, timedelta(seconds=width_s))
    if at is None and before_from and before_to and after_from and after_to:
        return Window(before_from, before_to), Window(after_from, after_to)
    if at is not None:
        raise InvalidInputError([FieldProblem(given[0], "is given together with `at`", "either of them")], what="query")
    missing = next(name for name in ends if name not in given)
    allowed = f"`at`, or all of {', '.join(ends)}"
    raise InvalidInputError([FieldProblem(missing, "is missing", allowed)], what="query")


@router.get("/compare-windows", responses=examples.of("windows_comparison"))
async def compare_windows(
    job: JobId, services: Given, windows: Annotated[tuple[Window, Window], Depends(_windows)]
) -> WindowsComparisonOut:
    """Compare the checkpoints in two windows of time: distributions, failures, and what changed in between.

    Name either an instant (``at``) and the length of the windows before and after it, or the ends of both windows.
    Measures are read from the newest 10,000 checkpoints of each window; counts include all of them.
    """
    return await services.window_comparison.of(job, *windows)
