"""The parts of a checkpoint's page: head, verdict, facts, evidence and source."""

from __future__ import annotations

from dash import dcc, html
from dash.development.base_component import Component

from backend.contracts.api import CheckpointDetailOut
from backend.contracts.barriers import BarriersOut
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.verdict import Basis, Health
from dashboard import routes, text
from dashboard.components import cards, micro_batch, restoring, status, verdict
from dashboard.components.attributes import attrs
from dashboard.figures.front import times
from dashboard.live import Look
from dashboard.pages.checkpoint.selection import is_pending


def head(found: CheckpointDetailOut, view: Look) -> list[Component]:
    """Crumbs, title with status, and links to other pages."""
    crumbs: list[Component | str] = [
        dcc.Link("Fleet", href=routes.fleet()),
        " / ",
        dcc.Link(found.job, href=routes.job(found.job_id)),
    ]
    at, at_utc = text.instant(found.triggered_at, view.where), text.instant_utc(found.triggered_at)
    title = [
        html.H1(f"{_kind(found)} {found.checkpoint_id}"),
        status.checkpoint(found),
        status.failure(found),
        *((status.mode(found.mode),) if found.capabilities.has_barriers else ()),
        html.Span(at, className="hint", title=at_utc),
    ]
    return [
        html.Div([html.Div(crumbs, className="crumbs"), html.Div(title, className="title-row")]),
        html.Div(_head_links(found), className="head-tools"),
    ]


def _head_links(found: CheckpointDetailOut) -> list[Component]:
    def link(number: int | None) -> str | None:
        return None if number is None else routes.checkpoint(found.job_id, found.run_id, number)

    healthy = routes.from_api_link(found.last_healthy_link)
    hint = "the last healthy checkpoint" if found.last_healthy_link else "no healthy checkpoint is known"
    return [
        cards.link_button("Advice", routes.advice(found.job_id), "bolt", hint="recommendations for the job"),
        cards.link_button("Previous", link(found.previous_id), "left", hint="previous checkpoint"),
        cards.link_button("Next", link(found.next_id), "right", hint="next checkpoint", is_icon_last=True),
        cards.link_button("Last healthy", healthy, "heart", hint=hint),
    ]


def vertex_buttons(found: CheckpointDetailOut, opened: list[str]) -> list[Component]:
    """Buttons that open and close vertices, for the keyboard."""
    return [
        html.Span("Subtasks of", className="hint"),
        *(
            html.Button(
                [html.Span(text.short(v.vertex, 24)), html.Span(f"{v.acknowledged_count}/{v.subtask_count}")],
                id={"type": "vertex-toggle", "vertex": v.vertex_id},
                className="button",
                title=f"{v.vertex}: {v.acknowledged_count} of {v.subtask_count} acknowledged; show or hide subtasks",
                **attrs({"aria-pressed": "true" if v.vertex_id in opened else "false"}),
            )
            for v in found.vertices
        ),
    ]


def _kind(found: CheckpointDetailOut) -> str:
    return "Batch" if found.batch is not None else found.kind.value.replace("-", " ").capitalize()


def verdict_part(found: CheckpointDetailOut) -> Component:
    beside = verdict.effects(found.critical_path, found.end_to_end_duration_ms)
    healthy = routes.from_api_link(found.last_healthy_link)
    if healthy:
        beside.append(dcc.Link("Compare with the last healthy checkpoint", href=healthy))
    health = Health.FAILING if found.status is CheckpointStatus.FAILED else None
    return verdict.verdict_card(found.verdict, engine=found.capabilities, tone_of=health, beside=beside)


def facts(found: CheckpointDetailOut, view: Look) -> Component:
    if found.batch is not None:
        return micro_batch.facts(found, found.batch)
    took = text.duration(found.end_to_end_duration_ms)
    why = "its end was not seen" if found.is_lost else "still in progress"
    return html.Section(
        cards.facts(
            [
                cards.fact("End-to-end duration", took, hint=why if took == text.MISSING else None),
                cards.fact("Acknowledged", f"{found.acknowledged_count} of {found.subtask_count}"),
                cards.fact("Start delay, max", text.duration(found.start_delay_max_ms)),
                cards.fact("Alignment, max", text.duration(found.alignment_max_ms)),
                cards.fact("Sync, max", text.duration(found.sync_max_ms)),
                cards.fact("Async, max", text.duration(found.async_max_ms)),
                cards.fact("Checkpointed size", text.size(found.checkpointed_size_bytes)),
                cards.fact("Full state size", text.size(found.full_state_size_bytes)),
                cards.fact("Persisted in-flight", text.size(found.persisted_bytes)),
                cards.fact("Timeout", text.duration(found.timeout_ms), basis=None, hint="configured"),
            ]
        ),
        className="card",
        **attrs({"aria-label": "Facts"}),
    )


def evidence(found: CheckpointDetailOut) -> Component:
    parts: list[Component] = [verdict.evidence_table(found.verdict)]
    if found.failure_message:
        parts.insert(
            0, html.P(["Message of the engine: ", html.Code(text.short(found.failure_message, 600))], className="hint")
        )
    evidence = cards.card("Evidence", parts, hint="the facts behind the verdict")
    return html.Div([c for c in (delays(found), evidence, restoring.card(found.restoring)) if c is not None])


def delays(found: CheckpointDetailOut) -> Component | None:
    """Per vertex the delay at its input, added by it and passed on; None if no start delay is known."""
    if all(v.start_delay_max_ms is None for v in found.vertices):
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
        for v in found.vertices
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
        return [status.basis(Basis.MEASURED), " per channel"]
    note = (
        barriers.note
        if barriers and barriers.note
        else "the engine does not report channels; dotted lines, with intervals"
    )
    return [status.basis(Basis.RECONSTRUCTED), f" {note}"]


def source(found: CheckpointDetailOut) -> Component:
    return cards.source_line(
        [
            f"Source: {found.capabilities.source}",
            cards.age("read", found.observed_at, is_alarming=is_pending(found)),
            f"run {found.run_id}",
        ]
    )
