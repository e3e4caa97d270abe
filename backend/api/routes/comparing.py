"""The routes that compare checkpoints and windows of time. ``/compare`` compares any two sides."""

from __future__ import annotations

from dataclasses import dataclass
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

router = APIRouter(tags=["comparisons"])

# At most 18 digits, so that the number fits into an integer of the store.
_ONE = r"^[^\x00]{1,100}:[0-9]{1,18}$"
_TEXT = r"^[^\x00]*$"
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
    str | None, Query(max_length=200, pattern=_TEXT, description="Also compare the subtasks of this vertex of `a`.")
]
Subtasks = Annotated[int, Query(ge=1, le=100, description="Number of subtasks of the vertex.")]
_WIDTH_MAX_S = 200 * 86_400
Width = Annotated[int, Query(ge=60, le=_WIDTH_MAX_S, description="Length of the windows before and after `at`.")]


@dataclass(frozen=True, slots=True)
class _Sides:
    """The two sides that a request names: of each a job, and either a checkpoint or the ends of a window."""

    a: str
    b: str
    checkpoints: tuple[str | None, str | None]
    windows: tuple[Window | None, Window | None]


def _sides(
    a: Annotated[str, Query(max_length=100, pattern=_TEXT, description="Id of a job.", examples=["j0f3a9c2d1e4b5a67"])],
    b: Annotated[
        str | None, Query(max_length=100, pattern=_TEXT, description="Id of the other job; absent for the same job.")
    ] = None,
    a_checkpoint: Annotated[
        str | None,
        Query(max_length=119, pattern=_ONE, description="A checkpoint of the job `a`: `run:checkpoint`."),
    ] = None,
    b_checkpoint: Annotated[
        str | None,
        Query(
            max_length=119,
            pattern=_ONE,
            description="A checkpoint of the job `b`; absent for its last healthy one before `a_checkpoint`.",
        ),
    ] = None,
    a_from: Annotated[Instant | None, Query(description="Begin of a window of `a`, included.")] = None,
    a_to: Annotated[Instant | None, Query(description="End of the window, excluded.")] = None,
    b_from: Annotated[Instant | None, Query(description="Begin of a window of `b`, included.")] = None,
    b_to: Annotated[Instant | None, Query(description="End of the window, excluded.")] = None,
) -> _Sides:
    """Return the sides that a request names.

    Raises:
        InvalidInputError: a window has one end only or stands beside a checkpoint, or `b` alone has a checkpoint.
    """
    ends: dict[str, datetime | None] = {"a_from": a_from, "a_to": a_to, "b_from": b_from, "b_to": b_to}
    given = [name for name, end in ends.items() if end is not None]
    if b_checkpoint is not None and a_checkpoint is None:
        raise _refused("a_checkpoint", "is missing, but `b_checkpoint` is given", "`run:checkpoint`")
    if given and a_checkpoint is not None:
        raise _refused(given[0], "is given together with `a_checkpoint`", "either of them")
    for side in "ab":
        missing = [name for name in (f"{side}_from", f"{side}_to") if name not in given]
        if len(missing) == 1:
            raise _refused(missing[0], "is missing", f"both of `{side}_from` and `{side}_to`, or neither")
    return _Sides(
        a, a if b is None else b, (a_checkpoint, b_checkpoint), (_window(a_from, a_to), _window(b_from, b_to))
    )


def _window(since: datetime | None, until: datetime | None) -> Window | None:
    return None if since is None or until is None else Window(since, until)


def _refused(name: str, what: str, allowed: str) -> InvalidInputError:
    return InvalidInputError([FieldProblem(name, what, allowed)], what="query")


@router.get("/compare", responses=examples.of("checkpoint_comparison"))
async def compare(
    services: Given,
    sides: Annotated[_Sides, Depends(_sides)],
    width_s: Annotated[
        int, Query(ge=60, le=_WIDTH_MAX_S, description="Length of the window up to now, if `a` has none.")
    ] = 3600,
    vertex: Opened = None,
    measure: SubtaskMeasure = SubtaskMeasure.DURATION,
    limit: Subtasks = 20,
) -> CheckpointComparisonOut | WindowsComparisonOut:
    """Compare two checkpoints or two windows of time, of one job or of two. `kind` in the response tells which.

    With `a_checkpoint`, two checkpoints are compared: what differs most, phases by vertex, bytes, settings and load.
    Without `b_checkpoint`, it is the last healthy one of `b` before it.

    Otherwise two windows are compared: distributions, failures, settings and load. Without `a_from` and `a_to`, the
    window of `a` is the newest `width_s` seconds. Without `b_from` and `b_to`, that of `b` is the same time of the
    other job or, of the same job, the same time one day earlier.
    """
    a, b = sides.checkpoints
    if a is not None:
        second = None if b is None else _key(sides.b, b)
        return await services.comparison.of(
            _key(sides.a, a), second, other=sides.b, vertex_id=vertex, measure=measure, limit=limit
        )
    return await services.window_comparison.of_sides(sides.a, sides.b, sides.windows, width=timedelta(seconds=width_s))


def _key(job: str, one: str) -> CheckpointKey:
    run, _, number = one.rpartition(":")
    return CheckpointKey(job, run, int(number))


@router.get("/jobs/{job}/compare", responses=examples.of("checkpoint_comparison"))
async def compare_checkpoints(
    job: JobId,
    services: Given,
    a: First,
    b: Second = None,
    vertex: Opened = None,
    measure: SubtaskMeasure = SubtaskMeasure.DURATION,
    limit: Subtasks = 20,
) -> CheckpointComparisonOut:
    """Compare two checkpoints of a job, as `/compare` does: what differs most, phases by vertex, bytes, settings, load.

    Without ``b``, the checkpoint is compared with the last healthy one before it. With ``vertex``, the response also
    has the subtasks of this vertex that differ most in ``measure``.
    """
    second = None if b is None else _key(job, b)
    return await services.comparison.of(_key(job, a), second, vertex_id=vertex, measure=measure, limit=limit)


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
        raise _refused(given[0], "is given together with `at`", "either of them")
    raise _refused(next(name for name in ends if name not in given), "is missing", f"`at`, or all of {', '.join(ends)}")


@router.get("/jobs/{job}/compare-windows", responses=examples.of("windows_comparison"))
async def compare_windows(
    job: JobId, services: Given, windows: Annotated[tuple[Window, Window], Depends(_windows)]
) -> WindowsComparisonOut:
    """Compare the checkpoints of a job in two windows of time, as `/compare` does, or around one instant.

    Name either an instant (``at``) and the length of the windows before and after it, or the ends of both windows.
    Measures are read from the newest 10,000 checkpoints of each window; counts include all of them.
    """
    return await services.window_comparison.of(job, *windows)
