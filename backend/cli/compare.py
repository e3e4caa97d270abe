"""``barrierscope compare JOB [OTHER]``: compares two checkpoints or two times, through the running API."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlencode

import typer

from backend.cli import columns
from backend.cli.options import instant, say, seconds
from backend.cli.targets import Api, Client
from backend.domain import spelling
from backend.domain.errors import FieldProblem, InvalidInputError

if TYPE_CHECKING:
    from backend.contracts.comparing import (
        CheckpointComparisonOut,
        ComparedJobOut,
        MeasureDifferenceOut,
        SettingPairOut,
        SettingValue,
    )
    from backend.contracts.comparing_windows import EstimateOut, WindowsComparisonOut
    from backend.contracts.freshness import Dated

_MISSING = "-"
_WIDTH_MAX_S = 200 * 86_400.0
_VERTICES_MAX = 20


def compare(
    job: Annotated[str, typer.Argument(metavar="JOB", help="Name or id of the job.")],
    other: Annotated[
        str | None, typer.Argument(metavar="[OTHER]", help="Name or id of another job; without it, the same job.")
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            "--checkpoint", metavar="[RUN:]N", help="Compare this checkpoint with the last healthy one before it."
        ),
    ] = None,
    against: Annotated[
        str | None, typer.Option("--against", metavar="[RUN:]N", help="The checkpoint to compare it with.")
    ] = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="INSTANT", help="Compare the time before with the time after it.")
    ] = None,
    width: Annotated[str, typer.Option("--width", metavar="TIME", help="Length of each time.")] = "1h",
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
    api: Api = None,
) -> None:
    """Compare two checkpoints or two times of a job or of two jobs: settings first, then what differs most.

    Without options, the newest hour of the job is compared with the same hour of OTHER or, without it, of yesterday.
    A number alone is a checkpoint of the job's current run.
    """
    from backend.contracts.comparing import CheckpointComparisonOut
    from backend.contracts.comparing_windows import WindowsComparisonOut

    _check(checkpoint, against, at, other)
    with Client(api) as client:
        a = client.job_id(job)
        b = a if other is None else client.job_id(other)
        query = {"a": a, "b": b}
        if checkpoint is not None:
            query["a_checkpoint"] = _key(client, a, checkpoint)
            if against is not None:
                query["b_checkpoint"] = _key(client, b, against)
            pair = client.get(f"/api/v1/compare?{urlencode(query)}", CheckpointComparisonOut)
            text, lines = pair.model_dump_json(indent=2), _of_checkpoints(pair)
        else:
            query |= _times(at, width)
            times = client.get(f"/api/v1/compare?{urlencode(query)}", WindowsComparisonOut)
            text, lines = times.model_dump_json(indent=2), _of_windows(times)
    if as_json:
        typer.echo(text)
    else:
        say(*lines)


def _check(checkpoint: str | None, against: str | None, at: str | None, other: str | None) -> None:
    problem = None
    if against is not None and checkpoint is None:
        problem = FieldProblem("--against", "it needs --checkpoint", "both of them")
    elif at is not None and (checkpoint is not None or other is not None):
        problem = FieldProblem("--at", "it compares two times of one job", "without --checkpoint and OTHER")
    if problem is not None:
        raise InvalidInputError([problem], what="option")


def _times(at: str | None, width: str) -> dict[str, str]:
    length = timedelta(seconds=round(seconds(width, option="--width", least=60.0, most=_WIDTH_MAX_S)))
    if at is None:
        return {"width_s": str(round(length.total_seconds()))}
    middle = instant(at, option="--at")
    ends = {"b_from": middle - length, "b_to": middle, "a_from": middle, "a_to": middle + length}
    return {name: end.isoformat() for name, end in ends.items()}


def _key(client: Client, job: str, words: str) -> str:
    from backend.contracts.api import JobDetailOut

    number = words.removeprefix("#")
    return f"{client.get(f'/api/v1/jobs/{job}', JobDetailOut).run.id}:{number}" if number.isdecimal() else words


def _of_checkpoints(comparison: CheckpointComparisonOut) -> Iterator[str]:
    if comparison.b is None:
        yield from _stale([(f"#{comparison.a.checkpoint.checkpoint_id}", comparison.a)], comparison.as_of)
        yield comparison.headline
        return
    names = f"#{comparison.a.checkpoint.checkpoint_id}", f"#{comparison.b.checkpoint.checkpoint_id}"
    if comparison.a.job.id != comparison.b.job.id:
        names = f"A {names[0]}", f"B {names[1]}"
    yield from _settings(comparison.settings, names, (comparison.a.job, comparison.b.job))
    yield from _stale(zip(names, (comparison.a, comparison.b), strict=True), comparison.as_of)
    yield comparison.headline
    yield "sample: one checkpoint on each side"
    if comparison.choice is not None:
        yield comparison.choice
    rows = [("largest of each vertex", "measure", *names, "difference")]
    for v in comparison.vertices[:_VERTICES_MAX]:
        rows += [
            (v.vertex, m.measure.value, _measured(m, m.a), _measured(m, m.b), _signed(m, m.difference))
            for m in v.measures
            if m.difference is not None
        ]
    yield ""
    yield from columns.lines_of(rows, left=2)
    if len(comparison.vertices) > _VERTICES_MAX:
        yield f"and {len(comparison.vertices) - _VERTICES_MAX} more vertices: --json has all"


def _of_windows(comparison: WindowsComparisonOut) -> Iterator[str]:
    names = comparison.before.name, comparison.after.name
    yield from _settings(comparison.settings, names, (comparison.before.job, comparison.after.job))
    yield from _stale(zip(names, (comparison.before, comparison.after), strict=True), comparison.as_of)
    yield comparison.headline
    counts = [
        f"{w.completed_count} completed and {w.failed_count} failed {w.name}" if w.is_stored else f"not known {w.name}"
        for w in (comparison.before, comparison.after)
    ]
    yield f"sample: {'; '.join(counts)}"
    yield ""
    heads = [f"{q} {name}" for q in ("median", "p99") for name in names]
    rows = [("", *heads)]
    for m in comparison.measures:
        medians = [None if d is None else d.median for d in (m.before, m.after)]
        p99s = [None if d is None else d.p99 for d in (m.before, m.after)]
        rows.append((m.measure.value, *(_estimate(one, m.unit) for one in (*medians, *p99s))))
    yield from columns.lines_of(rows)


def _stale(sides: Iterable[tuple[str, Dated]], as_of: datetime) -> Iterator[str]:
    from backend.contracts.freshness import stale_line

    for name, side in sides:
        if (old := stale_line(side.freshness, as_of)) is not None:
            yield f"{name} is {old}"


def _settings(
    settings: Sequence[SettingPairOut], names: tuple[str, str], jobs: tuple[ComparedJobOut, ComparedJobOut]
) -> Iterator[str]:
    differing = [s for s in settings if s.is_different]
    missing = [name for name, job in zip(names, jobs, strict=True) if not job.are_settings_known]
    if missing:
        yield f"settings not known: {', '.join(missing)}"
    elif not differing:
        yield "same settings"
    if differing:
        rows = [("settings that differ", *names), *((s.name, _value(s.a), _value(s.b)) for s in differing)]
        yield from columns.lines_of(rows)
    for name, job in zip(names, jobs, strict=True):
        if job.only_vertex_count:
            yield f"vertices of {name} only: {', '.join(job.only_vertices)}"
    yield ""


def _value(value: SettingValue) -> str:
    # The lists have pairs of values that both sides report, or that are off if they are missing.
    return "off" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _measured(one: MeasureDifferenceOut, value: int | None) -> str:
    return _MISSING if value is None else spelling.quantity(value, one.unit.value)


def _signed(one: MeasureDifferenceOut, value: int | None) -> str:
    if not value:
        return _measured(one, value)
    return f"{'+' if value > 0 else '-'}{_measured(one, abs(value))}"


def _estimate(one: EstimateOut | None, unit: str) -> str:
    if one is None:
        return _MISSING
    return f"{'>= ' if one.is_at_least else ''}{spelling.quantity(one.value, unit)}"
