"""Builds the state of a simulation, and the table of the differences between its runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

import dash_mantine_components as dmc
from dash import html
from dash.development.base_component import Component

from backend.contracts.api import CheckpointOut
from backend.contracts.simulations import QueuedWorkOut, SimulationOut, SimulationRunOut, SimulationState
from backend.domain.checkpoint import CheckpointStatus
from dashboard import text
from dashboard.components import cards, status
from dashboard.components.attributes import attrs
from dashboard.palette import Tone

_UNTAKEN_S: Final = 10
"""If the first simulation of the queue has waited longer than this, probably no worker runs. A worker takes it within a
second."""
_NEARLY: Final = 0.05
"""Two values count as about equal if they differ by less than this share."""


def simulated() -> html.Span:
    """Build the mark of numbers that come from a simulation."""
    hint = "measured in a simulation, on virtual time; a prediction for a real job, not an observation of one"
    return html.Span("simulated", className="basis basis-predicted", title=hint)


def not_kept() -> list[Component]:
    """Build the state if no result is stored for the request."""
    return state(
        "not run yet",
        "play",
        Tone.QUIET,
        "No result of this simulation is kept. Either it has not run, or its result has expired. Press Run: the same"
        " address always gives the same result.",
    )


def unusable(problem: str) -> list[Component]:
    """Build the state if the address does not contain a valid request."""
    return state("cannot run", "warning", Tone.WARN, f"{problem} Change it with the controls above.")


def state_of(simulation: SimulationOut, titles: Sequence[str]) -> list[Component]:
    """Build the state of a simulation. ``titles`` are those of its protocols."""
    names = " and ".join(titles)
    match simulation.state:
        case SimulationState.QUEUED:
            return queued(simulation)
        case SimulationState.RUNNING:
            done = text.percent(simulation.progress_ratio)
            return running(simulation, f"{names}: {done} of the virtual time is simulated.")
        case SimulationState.FAILED:
            return state(
                "failed", "cross", Tone.BAD, f"The simulation failed: {simulation.reason or 'no reason is known'}."
            )
        case SimulationState.CANCELLED:
            return state("cancelled", "cross", Tone.QUIET, "The simulation was cancelled. Run it again for a result.")
        case SimulationState.COMPLETED:
            return state("completed", "check", Tone.GOOD, _completed(simulation))


def _completed(simulation: SimulationOut) -> str:
    took = ""
    if simulation.started_at is not None and simulation.ended_at is not None:
        took = f" in {text.duration((simulation.ended_at - simulation.started_at).total_seconds() * 1_000)}"
    virtual = " and ".join(dict.fromkeys(text.duration(1_000 * r.virtual_time_s) for r in simulation.runs))
    kept = (
        ""
        if simulation.expires_at is None
        else f" The result is kept until {text.instant_utc(simulation.expires_at)[:16]} UTC."
    )
    of_example = (
        "This is an example, which the server simulated by itself. Choose a job and protocols, and press Run. "
        if simulation.is_example
        else ""
    )
    return f"{of_example}{virtual} of virtual time simulated{took}.{kept}"


def state(word: str, icon: str, tone: Tone, said: str) -> list[Component]:
    """Build the line with a state: its badge, and what it means."""
    return [html.P([status.badge(word, icon, tone), html.Span(said)], className="lab-state", role="status")]


def refused(problem: Exception) -> list[Component]:
    """Build the state if the API refuses to say how the work is."""
    return state("not known", "cross", Tone.BAD, f"The request was refused: {problem}")


def unanswered(problem: Exception) -> list[Component]:
    """Build the state while the API does not answer."""
    return state("no answer", "warning", Tone.WARN, f"{problem} The page asks again.")


def queued(work: QueuedWorkOut) -> list[Component]:
    """Build the state of work in the queue: what is before it, or that no worker takes it."""
    before = work.queue_position or 0
    words = "It starts next." if before == 0 else f"{text.counted(before, 'simulation')} before it."
    if before == 0 and (work.as_of - work.queued_at).total_seconds() > _UNTAKEN_S:
        words += " No worker has taken it yet. Is the role lab running?"
    return [*state("queued", "hourglass", Tone.INFO, words), _progress(0.0)]


def running(work: QueuedWorkOut, said: str) -> list[Component]:
    """Build the state of work that runs, with a bar of its progress."""
    return [*state("running", "progress", Tone.INFO, said), _progress(work.progress_ratio)]


def _progress(ratio: float) -> Component:
    return dmc.Progress(value=100 * ratio, size="sm", **attrs({"aria-label": "progress of the simulation"}))


# --- differences ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Measure:
    title: str
    value: Callable[[SimulationRunOut], float | None]
    words: Callable[[float | None], str]
    missing: str
    """Why the value may be missing."""
    more: tuple[str, str] = ("more", "less")


def _median(values: Sequence[int | None]) -> float | None:
    known = [v for v in values if v is not None]
    return median(known) if known else None


def _completed_of(run: SimulationRunOut) -> list[CheckpointOut]:
    return [c for c in run.checkpoints if c.status is CheckpointStatus.COMPLETED]


def _per_s(count: int | None, run: SimulationRunOut) -> float | None:
    return None if count is None or run.virtual_time_s <= 0 else count / run.virtual_time_s


def _rate(value: float | None) -> str:
    return text.rate(value)


_NONE_COMPLETED: Final = "no checkpoint completed"
_LONGER: Final = ("longer", "shorter")
MEASURES: Final = (
    _Measure("Checkpoints completed", lambda r: r.completed_count, text.count, ""),
    _Measure("Checkpoints failed", lambda r: r.failed_count, text.count, ""),
    _Measure("End-to-end duration, median", lambda r: r.duration_p50_ms, text.duration, _NONE_COMPLETED, _LONGER),
    _Measure("End-to-end duration, longest", lambda r: r.duration_max_ms, text.duration, _NONE_COMPLETED, _LONGER),
    _Measure(
        "Alignment of the slowest subtask, median",
        lambda r: _median([c.alignment_max_ms for c in _completed_of(r)]),
        text.duration,
        _NONE_COMPLETED,
        _LONGER,
    ),
    _Measure("Persisted in-flight data, most", lambda r: r.persisted_max_bytes, text.size, _NONE_COMPLETED),
    _Measure(
        "Written by a checkpoint, median",
        lambda r: _median([c.checkpointed_size_bytes for c in _completed_of(r)]),
        text.size,
        _NONE_COMPLETED,
    ),
    _Measure("Records processed by sinks", lambda r: _per_s(r.processed_records, r), _rate, "the job restarted"),
    _Measure("Records committed by sinks", lambda r: _per_s(r.committed_records, r), _rate, ""),
)


def differences(runs: Sequence[SimulationRunOut], titles: Sequence[str]) -> list[Component]:
    """Build the sentences and the table that compare the runs."""
    heads = [
        html.Th("Measure"),
        *(
            html.Th([f"{letter}: {title} ", simulated()], className="right")
            for letter, title in zip("AB", titles, strict=False)
        ),
        *([html.Th("B compared with A", className="right")] if len(runs) == 2 else []),
    ]
    rows = [html.Tr(_row(measure, runs)) for measure in MEASURES]
    table = html.Table([html.Thead(html.Tr(heads)), html.Tbody(rows)], className="plain-table lab-differences")
    return [html.P(sentence(runs, titles), className="verdict-sentence"), html.Div(table, className="table-scroll")]


def _row(measure: _Measure, runs: Sequence[SimulationRunOut]) -> list[Component]:
    values = [measure.value(run) for run in runs]
    cells: list[Component] = [html.Td(measure.title)]
    for value in values:
        if value is None:
            cells.append(html.Td(text.MISSING, className="right missing", title=measure.missing or "not known"))
        else:
            cells.append(html.Td(measure.words(value), className="right number"))
    if len(values) == 2:
        cells.append(html.Td(compared(values[0], values[1], measure.words, measure.more), className="right"))
    return cells


def compared(
    first: float | None,
    second: float | None,
    words: Callable[[float | None], str],
    more: tuple[str, str] = ("more", "less"),
) -> str:
    """Return how the second value differs from the first, as words. ``more`` are the words for larger and smaller."""
    if first is None or second is None:
        return "cannot be compared"
    if first == second:
        return "equal"
    if not first or not second:
        return f"{words(abs(second - first))} {more[0] if second > first else more[1]}"
    if abs(second - first) < _NEARLY * max(first, second):
        return "about equal"
    factor, word = max(first, second) / min(first, second), more[0] if second > first else more[1]
    if factor >= 2:
        return f"{text.factor(factor)} times {word}"
    return f"{text.percent(abs(second - first) / first)} {word}"


def sentence(runs: Sequence[SimulationRunOut], titles: Sequence[str]) -> str:
    """Describe the results of the runs in sentences."""
    if len(runs) == 1:
        return f"{_of_run(runs[0], titles[0])}."
    return f"{_of_run(runs[0], titles[0])}. {_of_run(runs[1], titles[1])}."


def _of_run(run: SimulationRunOut, title: str) -> str:
    ended = run.completed_count + run.failed_count
    if not ended:
        return f"{title}: no checkpoint ended within the virtual time"
    if not run.completed_count:
        longest = f" of {text.duration(run.timeout_ms)}" if run.timeout_ms else ""
        return f"{title}: none of {text.counted(ended, 'checkpoint')} completed; compare the timeout{longest}"
    kept = run.persisted_max_bytes or 0
    persisted = "none persisted in-flight data" if not kept else f"the largest persisted {text.size(kept)} in flight"
    return (
        f"{title}: {run.completed_count} of {text.counted(ended, 'checkpoint')} completed, with a median of"
        f" {text.duration(run.duration_p50_ms)}; {persisted}{_restarts(run.restart_count)}"
    )


def _restarts(count: int) -> str:
    return "" if not count else f"; the job failed and was restored {'once' if count == 1 else f'{count} times'}"


def card(children: cards.Children) -> html.Section:
    """Build the card with the differences."""
    return cards.card("What differs", children, hint="simulated on the reference runtime: the same job and seed")
