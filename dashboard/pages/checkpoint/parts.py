"""Builds the parts of a checkpoint's page: head, verdict, facts, evidence and source."""

from __future__ import annotations

from dash import dcc, html
from dash.development.base_component import Component

from backend.contracts.api import CheckpointDetailOut, VertexPhasesOut
from backend.contracts.barriers import BarriersOut
from backend.contracts.links import LinksOut
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.verdict import Basis, Health
from dashboard import routes, text
from dashboard.components import cards, inspection, links, micro_batch, restoring, status, verdict
from dashboard.components.attributes import attrs
from dashboard.figures.front import times
from dashboard.figures.gantt.rows import counted
from dashboard.live import Look
from dashboard.pages.checkpoint.selection import is_pending
from dashboard.span import epoch_ms
from dashboard.subtask_columns import left_out_count

_LEFT_OUT = (
    "The charts show {shown} of {total} subtasks: of each vertex the slowest, and those that the verdict names. Their"
    " counts are of these. The API returns all subtasks of a vertex in columns."
)
_ARRAYS_REMOVED = (
    "The values of its subtasks were removed to save space, because the checkpoint was healthy and is old. The largest"
    " value of each phase stays."
)


# The page of pressure shows at least this long before and after a checkpoint.
_AROUND_MS = 300_000


def head(detail: CheckpointDetailOut, view: Look) -> list[Component]:
    """Build the head of the page: the links that lead to it, the title with the status, and links to other pages."""
    crumbs: list[Component | str] = [
        dcc.Link("Fleet", href=routes.fleet()),
        " / ",
        dcc.Link(detail.job, href=routes.job(detail.job_id)),
    ]
    at, at_utc = text.instant(detail.triggered_at, view.where), text.instant_utc(detail.triggered_at)
    title = [
        html.H1(f"{_kind(detail)} {detail.checkpoint_id}"),
        status.checkpoint(detail),
        status.failure(detail),
        *((status.mode(detail.mode, detail.course),) if detail.capabilities.has_barriers else ()),
        html.Span(at, className="hint", title=at_utc),
        *status.clock(detail.clock_offset_ms),
    ]
    return [
        html.Div([html.Div(crumbs, className="crumbs"), html.Div(title, className="title-row")]),
        html.Div(_head_links(detail), className="head-tools"),
    ]


def _head_links(detail: CheckpointDetailOut) -> list[Component]:
    def link(number: int | None) -> str | None:
        return None if number is None else routes.checkpoint(detail.job_id, detail.run_id, number)

    healthy = routes.from_api_link(detail.last_healthy_link)
    healthy_hint = "the last healthy checkpoint" if healthy else "no healthy checkpoint is known"
    own = (detail.run_id, detail.checkpoint_id)
    hint = "compare with the last healthy checkpoint before this one, or with another one"
    return [
        cards.link_button("Advice", routes.advice(detail.job_id), "bolt", hint="recommendations for the job"),
        cards.link_button("Previous", link(detail.previous_id), "left", hint="previous checkpoint", steps="<"),
        cards.link_button("Next", link(detail.next_id), "right", hint="next checkpoint", is_icon_last=True, steps=">"),
        cards.link_button("Compare", routes.comparison(detail.job_id, own), "compare", hint=hint),
        *_space_time_link(detail),
        cards.link_button("Last healthy", healthy, "heart", hint=healthy_hint),
    ]


def _space_time_link(detail: CheckpointDetailOut) -> list[Component]:
    if not detail.capabilities.has_barriers:
        return []
    href = routes.space_time(detail.job_id, detail.run_id, detail.checkpoint_id)
    return [cards.link_button("Space-time", href, "lanes", hint="barriers between subtasks over time, and the cut")]


def vertex_buttons(detail: CheckpointDetailOut, opened: list[str]) -> list[Component]:
    """Build the buttons that open and close vertices, so that the keyboard can do this too."""
    return [
        html.Span("Subtasks of", className="hint"),
        *(
            html.Button(
                [html.Span(text.short(v.vertex, 24)), html.Span(counted(v))],
                id={"type": "vertex-toggle", "vertex": v.vertex_id},
                className="button",
                title=f"{v.vertex}: {_acknowledged(v)}; show or hide subtasks",
                **attrs({"aria-pressed": "true" if v.vertex_id in opened else "false"}),
            )
            for v in detail.vertices
        ),
        *(
            dcc.Link(
                f"Pressure of {text.short(v.vertex, 24)}",
                href=pressure_address(detail, v.vertex_id),
                className="strong-link",
            )
            for v in detail.vertices
            if v.vertex_id in opened
        ),
    ]


def _acknowledged(vertex: VertexPhasesOut) -> str:
    words = f"{vertex.acknowledged_count - vertex.finished_count} of {vertex.subtask_count} acknowledged"
    return f"{words}, {vertex.finished_count} had finished before" if vertex.finished_count else words


def _kind(detail: CheckpointDetailOut) -> str:
    return "Batch" if detail.batch is not None else detail.kind.value.replace("-", " ").capitalize()


def guilty(detail: CheckpointDetailOut) -> tuple[str | None, int | None]:
    """Return the vertex and the subtask that the verdict names. Of several subtasks, return the slowest."""
    vertex_id, named = detail.verdict.vertex_id, detail.verdict.subtasks
    vertex = next((v for v in detail.vertices if v.vertex_id == vertex_id), None)
    if vertex is None or vertex_id is None:
        return None, None
    if named and vertex.slowest_subtask not in named:
        return vertex_id, named[0]
    return vertex_id, vertex.slowest_subtask


def verdict_part(detail: CheckpointDetailOut, out: LinksOut | None = None) -> Component:
    beside = verdict.effects(detail.critical_path, detail.end_to_end_duration_ms, detail.verdict)
    if detail.capabilities.has_subtasks:
        beside.append(dcc.Link("Pressure at that time", href=pressure_address(detail, detail.verdict.vertex_id)))
    healthy = routes.from_api_link(detail.last_healthy_link)
    if healthy:
        href = routes.comparison(detail.job_id, (detail.run_id, detail.checkpoint_id))
        beside.append(dcc.Link("Compare with the last healthy checkpoint", href=href))
    health = Health.FAILING if detail.status is CheckpointStatus.FAILED else None
    below = [inspection.buttons(detail.capabilities, *guilty(detail), place="verdict"), links.row(out)]
    return verdict.verdict_card(
        detail.verdict,
        engine=detail.capabilities,
        tone_of=health,
        beside=beside,
        below=[part for part in below if part is not None],
    )


def pressure_address(detail: CheckpointDetailOut, vertex: str | None) -> str:
    """Return the address of the job's pressure around this checkpoint, with ``vertex`` opened."""
    begin = epoch_ms(detail.triggered_at)
    length_ms = detail.end_to_end_duration_ms or detail.timeout_ms or 0
    around_ms = max(_AROUND_MS, length_ms)
    return routes.pressure(detail.job_id, vertex=vertex, ends_ms=(begin - around_ms, begin + length_ms + around_ms))


def facts(detail: CheckpointDetailOut, view: Look) -> Component:
    if detail.batch is not None:
        return micro_batch.facts(detail, detail.batch)
    took = text.duration(detail.end_to_end_duration_ms)
    why = "its end was not seen" if detail.is_lost else "still in progress"
    return html.Section(
        cards.facts(
            [
                cards.fact("End-to-end duration", took, hint=why if took == text.MISSING else None),
                cards.fact("Acknowledged", f"{detail.acknowledged_count} of {detail.subtask_count}"),
                _least("Start delay, max", text.duration(detail.start_delay_max_ms), detail),
                _least("Alignment, max", text.duration(detail.alignment_max_ms), detail),
                _least("Sync, max", text.duration(detail.sync_max_ms), detail),
                _least("Async, max", text.duration(detail.async_max_ms), detail),
                _least("Checkpointed size", text.size(detail.checkpointed_size_bytes), detail),
                _least("Full state size", text.size(detail.full_state_size_bytes), detail),
                _least("Persisted in-flight", text.size(detail.persisted_bytes), detail),
                cards.fact("Timeout", text.duration(detail.timeout_ms), basis=None, hint="configured"),
            ]
        ),
        className="card",
        **attrs({"aria-label": "Facts"}),
    )


def _least(word: str, value: str, detail: CheckpointDetailOut) -> html.Div:
    """Return a fact. If subtasks did not acknowledge, they are missing in it, so it is a lower bound."""
    if not detail.is_lower_bound or value == text.MISSING:
        return cards.fact(word, value)
    count = (detail.subtask_count or 0) - (detail.acknowledged_count or 0)
    hint = f"at least: {text.counted(count, 'subtask')} had not acknowledged"
    return cards.fact(word, text.bounded(value, is_lower_bound=True), hint=hint)


def evidence(detail: CheckpointDetailOut) -> Component:
    parts: list[Component] = [verdict.evidence_table(detail.verdict)]
    if detail.failure_message:
        parts.insert(
            0, html.P(["Message of the engine: ", html.Code(text.short(detail.failure_message, 600))], className="hint")
        )
    if detail.are_arrays_removed:
        parts.insert(0, html.P(_ARRAYS_REMOVED, className="hint"))
    if left_out := left_out_count(detail):
        total = sum(v.subtask_count for v in detail.vertices)
        words = _LEFT_OUT.format(shown=text.count(total - left_out), total=text.count(total))
        parts.insert(0, html.P(words, className="hint"))
    evidence = cards.card("Evidence", parts, hint="the facts behind the verdict")
    return html.Div([c for c in (delays(detail), evidence, restoring.card(detail.restoring)) if c is not None])


def delays(detail: CheckpointDetailOut) -> Component | None:
    """Build the table of each vertex's delays: at its input, added by the vertex, and passed on downstream.

    Return None if no start delay is known.
    """
    if all(v.start_delay_max_ms is None for v in detail.vertices):
        return None
    columns = [
        html.Th("Vertex"),
        *(html.Th(word, className="right") for word in ("Delay at its input", "Delay added here", "Delay passed on")),
    ]
    rows = [
        html.Tr(
            [
                html.Td(text.short(v.vertex, 40), title=v.vertex),
                _delay(v.start_delay_max_ms, Basis.MEASURED),
                _delay(v.delay_added_ms, v.delay_basis),
                _delay(v.delay_passed_on_ms, v.delay_basis),
            ]
        )
        for v in detail.vertices
    ]
    return cards.card(
        "Delay per vertex",
        html.Table([html.Thead(html.Tr(columns)), html.Tbody(rows)], className="plain-table"),
        hint="trigger to first barrier, at the latest subtask; passed on: at the latest subtask downstream",
    )


def _delay(delay_ms: int | None, basis: Basis | None) -> html.Td:
    if delay_ms is None or basis is None:
        return html.Td(text.MISSING, className="right missing", title="not reported, or nothing is downstream")
    return html.Td([text.duration(delay_ms), " ", status.basis(basis)], className="right number")


def front_basis(model: times.Front, barriers: BarriersOut | None) -> list[Component | str]:
    if model.basis is Basis.MEASURED:
        return ["measured per channel"]
    note = (
        barriers.note
        if barriers and barriers.note
        else "the engine does not report channels; dotted lines, with intervals"
    )
    return [status.basis(Basis.RECONSTRUCTED), f" {note}"]


def source(detail: CheckpointDetailOut) -> Component:
    return cards.source_line(
        [
            f"Source: {detail.capabilities.source}",
            cards.age("read", detail.observed_at, is_alarming=is_pending(detail)),
            f"run {detail.run_id}",
        ]
    )
