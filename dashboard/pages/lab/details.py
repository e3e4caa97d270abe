"""The chosen checkpoint of each run: its words, the sizes of its charts, and which checkpoint is the default."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final

from dash import html
from dash.development.base_component import Component

from backend.contracts.simulations import SimulatedCheckpointOut, SimulationOut, SimulationRunOut
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.errors import ApiNotFoundError
from dashboard import text
from dashboard.client import ApiClient
from dashboard.components import status
from dashboard.components.simulations import simulated
from dashboard.figures import timeline as timeline_figure
from dashboard.figures.base import Chart, empty
from dashboard.figures.front import FrontView, draw, times
from dashboard.figures.gantt import end_of, gantt
from dashboard.figures.space_time import View, space_time
from dashboard.figures.virtual_time import virtual_timeline
from dashboard.live import Look

SIDES: Final = ("a", "b")
KINDS: Final = ("timeline", "gantt", "front", "space-time")
AXES: Final = "lab-axes"


class Axes(StrEnum):
    """Whether the charts of the two runs have the same axes. Otherwise, each has the axes of its own values."""

    SAME = "same"
    OWN = "own"


AXES_WORDS: Final[Mapping[Axes, str]] = {
    Axes.SAME: "Each chart of A has the axes of that of B, so lengths can be compared.",
    Axes.OWN: "Each chart has axes of its own, so compare the numbers, not the lengths.",
}
_OPENED_MAX: Final = 24
"""A job with more subtasks has only the vertex of the verdict opened in the phase chart."""
_ABSENT: Final = "This run has no checkpoint of this number."
_OLDER: Final = "An older version stored this result without its diagram. Run it again after it has expired."


@dataclass(frozen=True, slots=True)
class Shown:
    """What the charts of one run are drawn from. ``found`` is None if the run lacks the chosen checkpoint."""

    run: SimulationRunOut
    found: SimulatedCheckpointOut | None
    is_beside: bool
    """Whether another run is shown beside it, so that each has half of the page."""


def ids_of(runs: Sequence[SimulationRunOut]) -> list[int]:
    """Return the numbers of all checkpoints, in ascending order."""
    return sorted({c.checkpoint_id for run in runs for c in run.checkpoints})


def default_id(runs: Sequence[SimulationRunOut]) -> int | None:
    """Return the newest checkpoint that completed in all runs, or else in one, or else the newest that ended."""
    completed = [{c.checkpoint_id for c in run.checkpoints if c.status is CheckpointStatus.COMPLETED} for run in runs]
    ended = {c.checkpoint_id for run in runs for c in run.checkpoints if c.status.is_terminal}
    for ids in (set.intersection(*completed), set.union(*completed), ended, set(ids_of(runs))):
        if ids:
            return max(ids)
    return None


async def shown_of(client: ApiClient, simulation: SimulationOut, checkpoint: int | None) -> list[Shown]:
    """Read the chosen checkpoint of each run."""
    number = default_id(simulation.runs) if checkpoint is None else checkpoint

    async def read(index: int) -> SimulatedCheckpointOut | None:
        if number is None:
            return None
        try:
            return await client.simulated_checkpoint(simulation.id, index, number)
        except ApiNotFoundError:
            return None

    found = await asyncio.gather(*(read(index) for index in range(len(simulation.runs))))
    is_beside = len(simulation.runs) > 1
    return [Shown(run, one, is_beside) for run, one in zip(simulation.runs, found, strict=True)]


def end_ms_of(shown: Sequence[Shown]) -> int:
    """Return the right end of the slider of the barrier fronts: the end of the longest checkpoint."""
    ends = [f.end_ms for one in shown if (f := _front_of(one)) is not None]
    return max(1, round(max(ends, default=1.0) + 0.5))


def half_ms_of(shown: Sequence[Shown]) -> int:
    """Return the instant that the barrier fronts show at first: half of the longest checkpoint."""
    ends = [f.end_ms for one in shown if (f := _front_of(one)) is not None]
    return round(max(ends, default=0.0) / 2)


def _front_of(shown: Shown) -> times.Front | None:
    if shown.found is None:
        return None
    elapsed_ms = None
    if not shown.found.checkpoint.status.is_terminal:
        began_s = shown.found.checkpoint.triggered_at.timestamp()
        elapsed_ms = round(1_000 * (shown.run.virtual_time_s - began_s))
    return times.build(
        shown.found.checkpoint, shown.run.vertices, shown.run.edges, shown.found.barriers, elapsed_ms=elapsed_ms
    )


def chart_of(kind: str, shown: Shown, view: Look, *, at_ms: float | None, beside: Sequence[Shown] = ()) -> Chart:
    """Draw one chart of a run. Its axes have room for the same chart of the runs ``beside``."""
    is_narrow = view.is_narrow or shown.is_beside
    if kind == "timeline":
        return virtual_timeline(shown.run, view.theme, [s.run for s in beside])
    if shown.found is None:
        return empty(view.theme, _ABSENT)
    checkpoint = shown.found.checkpoint
    if kind == "gantt":
        subtasks = sum(len(v.subtasks) for v in checkpoint.vertices)
        opened = [
            v.vertex_id
            for v in checkpoint.vertices
            if subtasks <= _OPENED_MAX or v.vertex_id == checkpoint.verdict.vertex_id
        ]
        axis_ms = max((end_of(s.found.checkpoint) for s in beside if s.found is not None), default=0.0)
        return gantt(checkpoint, theme=view.theme, opened=opened, is_narrow=is_narrow, axis_ms=axis_ms)
    if kind == "front":
        front = _front_of(shown)
        assert front is not None
        at = front.end_ms if at_ms is None else min(at_ms, front.end_ms)
        return draw(front, at, FrontView(view.theme, is_narrow=view.is_narrow))
    if shown.found.space_time is None:
        return empty(view.theme, _OLDER)
    ends = [s.found.space_time.end_ms for s in beside if s.found is not None and s.found.space_time is not None]
    return space_time(
        shown.found.space_time,
        View(
            view.theme,
            is_narrow=is_narrow,
            at_ms=at_ms if at_ms is not None and at_ms <= shown.found.space_time.end_ms else None,
            axis_ms=max(ends, default=0.0),
        ),
        revision=f"{checkpoint.run_id}/{checkpoint.checkpoint_id}",
    )


def heights(shown: Sequence[Shown], view: Look, at_ms: float | None) -> Mapping[str, dict[str, str]]:
    """Return the size of the box of each chart, so that nothing moves when the charts are drawn."""
    by_id = {}
    for kind in KINDS:
        for index, side in enumerate(SIDES):
            height_px = timeline_figure.HEIGHT_PX
            if index < len(shown):
                height_px = chart_of(kind, shown[index], view, at_ms=at_ms).height_px
            by_id[f"lab-{kind}-{side}"] = {"height": f"{height_px}px"}
    return by_id


def head(shown: Shown, letter: str, title: str) -> list[Component]:
    """Build what stands over the details of a run: its protocol, and the verdict on the chosen checkpoint."""
    name = html.H2([html.Span(letter, className="comparison-letter"), title], className="lab-side-name")
    if shown.found is None:
        return [name, html.P(_ABSENT, className="hint")]
    checkpoint, diagram = shown.found.checkpoint, shown.found.space_time
    least = partial(text.bounded, is_lower_bound=checkpoint.is_lower_bound)
    cut = None if diagram is None else html.P(diagram.cut.sentence, className="hint")
    facts = html.P(
        [
            status.checkpoint_status(checkpoint.status),
            html.Span(f"{text.duration(checkpoint.end_to_end_duration_ms)} end to end"),
            html.Span(f"alignment up to {least(text.duration(checkpoint.alignment_max_ms))}"),
            html.Span(f"persisted {least(text.size(checkpoint.persisted_bytes))} in flight"),
            simulated(),
        ],
        className="lab-facts",
    )
    notes = [] if cut is None else [cut]
    if diagram is not None and diagram.is_folded:
        words = f"The space-time diagram shows {diagram.subtask_count} subtasks in {len(diagram.lanes)} lanes."
        notes.append(html.P(words, className="hint"))
    return [name, facts, html.P(checkpoint.verdict.sentence), *notes]


def options(runs: Sequence[SimulationRunOut]) -> list[dict[str, str]]:
    """Return the choices of checkpoints, with the state of each in the runs."""
    states: dict[int, list[str]] = {number: [] for number in ids_of(runs)}
    for run in runs:
        known = {c.checkpoint_id: c.status.value.replace("_", " ") for c in run.checkpoints}
        for number, words in states.items():
            words.append(known.get(number, "absent"))
    return [
        {"value": str(number), "label": f"{number}: {' / '.join(dict.fromkeys(words))}"}
        for number, words in states.items()
    ]
