"""Builds the parts of the page that compares two checkpoints: both sides, headline, settings and load."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import tzinfo

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from backend.contracts.api import CheckpointOut
from backend.contracts.comparing import (
    CheckpointComparisonOut,
    ComparedOut,
    LoadOut,
    LoadPairOut,
    SettingPairOut,
    SettingValue,
)
from backend.domain.verdict import Basis
from dashboard import routes, text
from dashboard.components import cards, status
from dashboard.components.attributes import attrs
from dashboard.palette import Tone

SIDES = ("a", "b")
_LETTERS = {"a": "A", "b": "B"}
_SETTINGS = {
    "alignment": "Alignment of barriers",
    "mode": "Mode",
    "interval_ms": "Interval",
    "timeout_ms": "Timeout",
    "min_pause_ms": "Min pause",
    "max_concurrent": "Max concurrent",
    "is_unaligned_enabled": "Unaligned",
    "aligned_timeout_ms": "Aligned timeout",
    "tolerable_failed_count": "Tolerable failures",
    "state_backend": "State backend",
    "checkpoint_storage": "Storage",
    "inflight_cap_bytes": "In-flight cap",
    "debloat_target_ms": "Debloating target",
    "protocol": "Protocol",
    "spilling": "Spilling",
}
_UNLIMITED = 2**31 - 1


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

    return html.Div(
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


def side(one: ComparedOut | None, letter: str, where: tzinfo) -> list[Component]:
    """Build the title and the facts of one side."""
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
        status.checkpoint(c),
        status.failure(c),
        None if one.batch is not None else status.mode(c.mode),
        at,
    ]
    return [html.Div([t for t in title if t is not None], className="title-row"), cards.facts(facts)]


def _least(c: CheckpointOut, words: str) -> str:
    return text.bounded(words, is_lower_bound=c.is_lower_bound)


def _acknowledged(c: CheckpointOut) -> str:
    return text.MISSING if c.subtask_count is None else f"{c.acknowledged_count} of {c.subtask_count}"


def headline(found: CheckpointComparisonOut) -> Component:
    """Build the card with the sentence about what differs most."""
    cause = found.cause
    chips: list[Component] = []
    if cause is not None:
        if cause.vertex is not None:
            chips.append(html.Span(["vertex ", html.B(cause.vertex)], className="chip chip-name", title=cause.vertex))
            chips.append(html.Span(["subtask ", html.B(str(cause.subtask))], className="chip"))
        if cause.phase is not None:
            chips.append(status.phase(cause.phase))
        chips.append(status.basis(cause.basis))
    parts: list[Component] = [html.P(found.headline, className="verdict-sentence")]
    if found.choice is not None and found.b is not None:
        parts.append(html.P(found.choice, className="hint", id="comparison-choice"))
    if chips:
        parts.append(html.Div(chips, className="chips"))
    tone = Tone.QUIET if cause is None else Tone.WARN
    return html.Section(
        parts, className=f"card verdict edge-{tone}", **attrs({"aria-label": "Difference", "aria-live": "polite"})
    )


def vertex_buttons(found: CheckpointComparisonOut) -> list[Component]:
    """Build the buttons that open a vertex, so that the keyboard can do this too."""
    if not found.vertices:
        return []
    opened = None if found.opened is None else found.opened.vertex_id
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
            for v in found.vertices
        ),
    ]


def settings(found: CheckpointComparisonOut) -> Component | None:
    """Build the card with the settings of both sides, those that differ first. Return None if none are known."""
    if not found.settings:
        return None
    differing = [s for s in found.settings if s.is_different]
    same = [s for s in found.settings if not s.is_different]
    heads = ("Setting", *_names(found))
    parts: list[Component] = []
    if differing:
        parts.append(cards.table(heads, [setting(s) for s in differing]))
    if same:
        table = cards.table(heads, [setting(s) for s in same])
        number = "1 setting is" if len(same) == 1 else f"{len(same)} settings are"
        words = f"{number} the same" if differing else f"All {len(same)} settings are the same"
        parts.append(html.Details([html.Summary(words), table], className="events"))
    return cards.card("Settings", parts, hint="as they were when each was triggered")


def setting(pair: SettingPairOut) -> html.Tr:
    """Build the row of one setting."""
    cells: list[Component] = [html.Td(_SETTINGS.get(pair.name, pair.name[:1].upper() + pair.name[1:]))]
    for value in (pair.a, pair.b):
        words = _value(pair.name, value)
        cells.append(html.Td(html.B(words) if pair.is_different else words, className="number"))
    return html.Tr(cells, className="is-different" if pair.is_different else "")


def _value(name: str, value: SettingValue) -> str:
    if value is None:
        return text.MISSING
    if isinstance(value, bool):
        return "enabled" if value else "disabled"
    if isinstance(value, str):
        return value.replace("_", " ").replace("-", " ") if name in ("mode", "alignment") else value
    if name.endswith("_ms"):
        return text.duration(value)
    if name.endswith("_bytes"):
        return text.size(value)
    return "unlimited" if value >= _UNLIMITED else text.count(value)


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


def load(found: CheckpointComparisonOut) -> Component | None:
    """Build the card with the load of each vertex on both sides. Return None if there are no readings."""
    if not found.loads:
        return None
    # A measure that no vertex reports on either side has no column.
    shown = [one for one in _LOADS if any(_read(one, side) is not None for p in found.loads for side in (p.a, p.b))]
    if not shown:
        return None
    heads = [html.Th("Vertex"), *(html.Th(word, className="right") for word, _, _ in shown)]
    rows = [
        html.Tr([html.Td(text.short(p.vertex, 36), title=p.vertex), *(_load_cell(one, p) for one in shown)])
        for p in found.loads
    ]
    a, b = _names(found)
    table = html.Table([html.Thead(html.Tr(heads)), html.Tbody(rows)], className="plain-table")
    hint = f"{a} / {b}, mean of the readings during each checkpoint and 15 s around it"
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


def source(found: CheckpointComparisonOut) -> Component:
    """Build the line at the bottom of the page."""
    runs = dict.fromkeys(c.checkpoint.run_id for c in (found.a, found.b) if c is not None)
    word = "run" if len(runs) == 1 else "runs"
    return cards.source_line([f"Source: {found.capabilities.source}", f"{word} {', '.join(runs)}"])


def _names(found: CheckpointComparisonOut) -> tuple[str, str]:
    numbers = [f"#{c.checkpoint.checkpoint_id}" for c in (found.a, found.b) if c is not None]
    return numbers[0], numbers[-1]
