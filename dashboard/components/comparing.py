"""Builds the parts of the page that compares two checkpoints: both sides, headline, settings and load."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta, tzinfo

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from backend.contracts.api import CheckpointOut
from backend.contracts.comparing import (
    CheckpointComparisonOut,
    ComparedOut,
    LoadOut,
    LoadPairOut,
)
from backend.domain.verdict import Basis
from dashboard import routes, text
from dashboard.components import cards, compared_settings, job_picker, status
from dashboard.components.attributes import attrs
from dashboard.figures.comparison import names
from dashboard.palette import Tone

SIDES = ("a", "b")
OTHER_JOB = "comparison-other"
"""The id of the list that chooses the job of side B."""
_LETTERS = {"a": "A", "b": "B"}


def controls(side: str) -> Component:
    """Build the controls that choose the checkpoint of one side: neighbours, a list of recent ones, and its id."""
    letter = _LETTERS[side]

    def step(word: str, to: str, icon: str) -> Component:
        label = f"{letter}: {word.lower()} checkpoint"
        return html.Button(
            [status.icon(icon), html.Span(word, className="visually-hidden")],
            id=f"comparison-{side}-{to}",
            className="button",
            title=label,
            **attrs({"aria-label": label}),
        )

    choices = html.Div(
        [
            step("Previous", "previous", "left"),
            dmc.Select(
                id=f"comparison-{side}-recent",
                data=[],
                searchable=True,
                allowDeselect=False,
                size="xs",
                maxDropdownHeight=320,
                nothingFoundMessage="not among the recent ones; type its id",
                className="comparison-recent",
                **attrs({"aria-label": f"{letter}: recent checkpoints"}),
            ),
            step("Next", "next", "right"),
            html.Label(
                [
                    html.Span(f"{letter}: id of a checkpoint; Enter shows it", className="visually-hidden"),
                    dcc.Input(
                        id=f"comparison-{side}-id",
                        type="text",
                        inputMode="numeric",
                        placeholder="id",
                        debounce=True,
                        maxLength=119,
                        autoComplete="off",
                    ),
                ],
                className="comparison-id",
            ),
        ],
        className="comparison-controls",
        **attrs({"role": "group", "aria-label": f"Checkpoint {letter}"}),
    )
    job = [job_picker.picker(OTHER_JOB, "Job of B")] if side == "b" else []
    return html.Div([*job, choices], className="comparison-choices")


def side(one: ComparedOut | None, letter: str, where: tzinfo, *, is_named: bool = False) -> list[Component]:
    """Build the title and the facts of one side. ``is_named`` is whether the title has the job."""
    mark = html.Span(letter, className="comparison-letter", **attrs({"aria-hidden": "true"}))
    if one is None:
        return [html.Div([mark, html.Span("Choose a checkpoint below.", className="hint")], className="title-row")]
    c = one.checkpoint
    word = "Batch" if one.batch is not None else c.kind.value.replace("-", " ").capitalize()
    link = dcc.Link(
        f"{word} {c.checkpoint_id}",
        href=routes.checkpoint(c.job_id, c.run_id, c.checkpoint_id),
        className="strong-link",
    )
    took = text.duration(c.end_to_end_duration_ms)
    facts = [cards.fact("Duration", took)]
    if one.batch is None:
        facts += [
            cards.fact("Persisted in-flight", _least(c, text.size(c.persisted_bytes))),
            cards.fact("Checkpointed", _least(c, text.size(c.checkpointed_size_bytes))),
            cards.fact("Full state", _least(c, text.size(c.full_state_size_bytes))),
            cards.fact("Acknowledged", _acknowledged(c)),
        ]
        if one.are_arrays_removed:
            facts += [
                cards.fact("Start delay, max", _least(c, text.duration(c.start_delay_max_ms))),
                cards.fact("Alignment, max", _least(c, text.duration(c.alignment_max_ms))),
                cards.fact("Sync, max", _least(c, text.duration(c.sync_max_ms))),
                cards.fact("Async, max", _least(c, text.duration(c.async_max_ms))),
            ]
    else:
        rate = one.batch.processed_rows_per_s
        rows = None if one.batch.state is None else one.batch.state.row_count
        facts += [
            cards.fact("Rows", text.count(one.batch.input_row_count)),
            cards.fact("Rows/s", text.count(rate)),
            cards.fact("State rows", text.count(rows)),
        ]
    at = html.Span(text.instant(c.triggered_at, where), className="hint", title=text.instant_utc(c.triggered_at))
    title: list[Component | None] = [
        mark,
        link,
        html.Span(f"of {one.job.name}", className="hint", title=f"target {one.job.target_name}") if is_named else None,
        status.checkpoint(c),
        status.failure(c),
        None if one.batch is not None else status.mode(c.mode, c.course),
        at,
    ]
    return [html.Div([t for t in title if t is not None], className="title-row"), cards.facts(facts)]


def _least(c: CheckpointOut, words: str) -> str:
    return text.bounded(words, is_lower_bound=c.is_lower_bound)


def _acknowledged(c: CheckpointOut) -> str:
    return text.MISSING if c.subtask_count is None else f"{c.acknowledged_count} of {c.subtask_count}"


def headline(comparison: CheckpointComparisonOut) -> Component:
    """Build the card with the sentence about what differs most."""
    cause = comparison.cause
    chips: list[Component] = []
    if cause is not None:
        if cause.vertex is not None:
            chips.append(html.Span(["vertex ", html.B(cause.vertex)], className="chip chip-name", title=cause.vertex))
            chips.append(html.Span(["subtask ", html.B(str(cause.subtask))], className="chip"))
        if cause.phase is not None:
            chips.append(status.phase(cause.phase))
        chips.append(status.basis(cause.basis))
    parts: list[Component] = [html.P(comparison.headline, className="verdict-sentence")]
    if comparison.b is not None:
        words = "Sample: one checkpoint on each side."
        parts.append(html.P([words, " ", _hours(comparison, comparison.b)], className="hint", id="comparison-sample"))
    if comparison.choice is not None and comparison.b is not None:
        parts.append(html.P(comparison.choice, className="hint", id="comparison-choice"))
    if chips:
        parts.append(html.Div(chips, className="chips"))
    tone = Tone.QUIET if cause is None else Tone.WARN
    return html.Section(
        parts, className=f"card verdict edge-{tone}", **attrs({"aria-label": "Difference", "aria-live": "polite"})
    )


def _hours(comparison: CheckpointComparisonOut, b: ComparedOut) -> Component:
    """Build the link to the windows around both checkpoints, if these do not overlap."""
    half = timedelta(minutes=30)
    at, before = comparison.a.checkpoint.triggered_at, b.checkpoint.triggered_at
    other = b.job.id if b.job.id != comparison.job_id else None
    if other is None and at - before < 2 * half:
        return html.Span()
    ends = (before - half, before + half), (at - half, at + half)
    return dcc.Link("Compare the hours around them", href=routes.windows(comparison.job_id, *ends, other=other))


def vertex_buttons(comparison: CheckpointComparisonOut) -> list[Component]:
    """Build the buttons that open a vertex, so that the keyboard can do this too."""
    if not comparison.vertices:
        return []
    opened = None if comparison.opened is None else comparison.opened.vertex_id
    return [
        html.Span("Subtasks of", className="hint"),
        *(
            html.Button(
                html.Span(text.short(v.vertex, 24)),
                id={"type": "comparison-vertex", "vertex": v.vertex_id},
                className="button",
                title=f"{v.vertex}: show or hide the subtasks that differ most",
                **attrs({"aria-pressed": "true" if v.vertex_id == opened else "false"}),
            )
            for v in comparison.vertices
        ),
    ]


def settings(comparison: CheckpointComparisonOut) -> Component | None:
    """Build the card with what differs in the settings. Return None without a second checkpoint."""
    if comparison.b is None:
        return None
    hint = "as they were when each was triggered"
    return compared_settings.card(
        comparison.settings, names(comparison), (comparison.a.job, comparison.b.job), hint=hint
    )


_Load = tuple[str, Callable[[LoadOut], float | None], Callable[[float | None], str]]
_RATE = "Records/s"
_LOADS: tuple[_Load, ...] = (
    ("Busy", lambda x: x.busy_mean_ratio, text.percent),
    ("Busiest subtask", lambda x: x.busy_max_ratio, text.percent),
    ("Backpressured", lambda x: x.backpressured_mean_ratio, text.percent),
    ("Most backpressured", lambda x: x.backpressured_max_ratio, text.percent),
    (_RATE, lambda x: x.records_per_s, text.count),
    ("Queued", lambda x: x.queued_bytes, text.size),
)


def load(comparison: CheckpointComparisonOut) -> Component | None:
    """Build the card with the load of each vertex on both sides. Return None if there are no readings."""
    return load_card(comparison.loads, names(comparison), of="the readings during each checkpoint and 15 s around it")


def load_card(loads: Sequence[LoadPairOut], whose: tuple[str, str], *, of: str) -> Component | None:
    """Build the card with the load of each vertex. ``of`` says which readings it is the mean of."""
    # A measure that no vertex reports on either side has no column.
    shown = [one for one in _LOADS if any(_read(one, side) is not None for p in loads for side in (p.a, p.b))]
    if not shown:
        return None
    heads = [html.Th("Vertex"), *(html.Th(word, className="right") for word, _, _ in shown)]
    rows = [
        html.Tr([html.Td(text.short(p.vertex, 36), title=p.vertex), *(_load_cell(one, p) for one in shown)])
        for p in loads
    ]
    table = html.Table([html.Thead(html.Tr(heads)), html.Tbody(rows)], className="plain-table")
    hint = f"{whose[0]} / {whose[1]}, mean of {of}"
    return cards.card("Load", html.Div(table, className="table-scroll"), hint=hint)


def _read(one: _Load, side_: LoadOut | None) -> float | None:
    return None if side_ is None else one[1](side_)


def _load_cell(one: _Load, pair: LoadPairOut) -> html.Td:
    a, b = _read(one, pair.a), _read(one, pair.b)
    words = [one[2](value) for value in (a, b)]
    is_far = a is not None and b is not None and abs(a - b) > 0.2 * max(abs(a), abs(b), 0.05)
    first: Component = html.B(words[0]) if is_far else html.Span(words[0])
    title = "not read on one side" if (a is None) != (b is None) else None
    if a is None and b is None:
        title = "not reported"
    parts: list[Component] = [first, html.Span(f" / {words[1]}", className="hint")]
    if one[0] == _RATE:
        bases = {side_.records_per_s_basis for side_ in (pair.a, pair.b) if side_ is not None}
        # One value of counts, which have the age of the engine's metrics, makes the comparison a reconstruction.
        parts += [html.Span(" "), status.basis(Basis.RECONSTRUCTED)] if Basis.RECONSTRUCTED in bases else []
    return html.Td(parts, className="right number", title=title)


def options(
    recent: Sequence[CheckpointOut], one: ComparedOut | None, where: tzinfo
) -> tuple[list[dict[str, str]], str | None]:
    """Return the options of a list of checkpoints, and the chosen one, which is always among them."""
    rows = list(recent)
    chosen = None if one is None else value_of(one.checkpoint)
    if one is not None and all(value_of(c) != chosen for c in rows):
        rows.append(one.checkpoint)
    return [{"value": value_of(c), "label": _option(c, where)} for c in rows], chosen


def _option(c: CheckpointOut, where: tzinfo) -> str:
    state = "end not seen" if c.is_lost else c.status.value.replace("-", " ")
    if c.failure_reason is not None:
        state = c.failure_reason.value.replace("-", " ")
    at = text.instant(c.triggered_at, where, with_date=False)
    return f"#{c.checkpoint_id}  {text.duration(c.end_to_end_duration_ms)}  {state}  {at}"


def value_of(c: CheckpointOut) -> str:
    """Return a checkpoint as the page's address contains it."""
    return f"{c.run_id}:{c.checkpoint_id}"


def source(comparison: CheckpointComparisonOut) -> Component:
    """Build the line at the bottom of the page."""
    runs = dict.fromkeys(c.checkpoint.run_id for c in (comparison.a, comparison.b) if c is not None)
    word = "run" if len(runs) == 1 else "runs"
    sources = dict.fromkeys(c.job.capabilities.source for c in (comparison.a, comparison.b) if c is not None)
    return cards.source_line([f"Source: {', '.join(sources)}", f"{word} {', '.join(runs)}"])
