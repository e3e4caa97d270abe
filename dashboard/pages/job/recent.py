"""Builds the table of a job's newest checkpoints, and the lists of the job's events and annotations."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo

from dash import dcc, html
from dash.development.base_component import Component

from backend.contracts.annotations import AnnotationOut
from backend.contracts.api import CheckpointOut, JobEventOut
from backend.contracts.engines import CapabilitiesOut
from dashboard import routes, text
from dashboard.components import cards, status

_RECENT_MAX = 15

_RANGE_MAX = 60

_ANNOTATIONS_MAX = 50

_BARRIER_HEADS = ("Start delay", "Alignment", "Persisted")


def recent_card(
    checkpoints: Sequence[CheckpointOut],
    events: Sequence[JobEventOut],
    where: tzinfo,
    *,
    engine: CapabilitiesOut,
    is_range: bool,
) -> Component:
    """Build the table of the newest checkpoints. Each checkpoint is a link, so it can be reached with the keyboard.

    A job without checkpoints and events has no such card.
    """
    if not checkpoints and not events and not is_range:
        return html.Div()
    shown = checkpoints[: _RANGE_MAX if is_range else _RECENT_MAX]
    heads = (
        "Micro-batch" if engine.is_micro_batched else "Checkpoint",
        "Status",
        *(("Mode",) if engine.has_barriers else ()),
        "Triggered",
        "Duration",
        *(("Acked",) if engine.has_subtasks else ()),
        *(_BARRIER_HEADS if engine.has_barriers else ()),
    )
    rows = [
        html.Tr(
            [
                html.Td(_link(c, "batch" if engine.is_micro_batched else c.kind.value)),
                html.Td([status.checkpoint(c), " ", status.failure(c)]),
                *((html.Td(status.mode(c.mode, c.course)),) if engine.has_barriers else ()),
                html.Td(text.instant(c.triggered_at, where), title=text.instant_utc(c.triggered_at)),
                html.Td(text.duration(c.end_to_end_duration_ms), className="right number"),
                *((_acknowledged_cell(c),) if engine.has_subtasks else ()),
                *(_barrier_cells(c) if engine.has_barriers else ()),
            ]
        )
        for c in shown
    ]  # fmt: skip
    right = {"Duration", "Acked", *_BARRIER_HEADS}
    head = html.Thead(html.Tr([html.Th(h, className="right" if h in right else "") for h in heads]))
    table = html.Table([head, html.Tbody(rows)], className="plain-table")
    parts: list[Component] = [html.Div(table, className="table-scroll")] if rows else []
    if events:
        parts.append(_events(events, where, checkpoints[0].job_id if checkpoints else None))
    noun = "micro-batches" if engine.is_micro_batched else "checkpoints"
    if is_range and not checkpoints:
        hint = "the timeline shows no single ones; choose a shorter range"
    elif is_range:
        hint = f"the newest {len(rows)} of {len(checkpoints)} in the chosen range"
    else:
        hint = f"the newest {len(rows)}; the table of the timeline has all"
    return cards.card(f"{noun.capitalize()} in the range" if is_range else f"Newest {noun}", parts, hint=hint)


def annotations_card(annotations: Sequence[AnnotationOut], where: tzinfo) -> Component | None:
    """Build the table of annotations in the range, or return None if there are none."""
    if not annotations:
        return None
    rows = [
        html.Tr(
            [
                html.Td(_lasted(a, where), title=text.instant_utc(a.at_engine), className="number"),
                html.Td(a.text),
                html.Td(", ".join(a.tags) or text.MISSING),
                html.Td(a.author or text.MISSING),
                html.Td(_outside(a.link) if a.link else text.MISSING),
            ]
        )
        for a in annotations[:_ANNOTATIONS_MAX]
    ]
    number = len(annotations)
    hint = f"the newest {len(rows)} of {number}" if number > len(rows) else "posted by scripts or people"
    table = html.Div(cards.table(("When", "Text", "Tags", "By", "Link"), rows), className="table-scroll")
    return cards.card("Annotations", table, hint=hint)


def _lasted(annotation: AnnotationOut, where: tzinfo) -> str:
    began = text.instant(annotation.at_engine, where)
    if annotation.until_engine is None:
        return began
    is_same_day = annotation.until_engine.astimezone(where).date() == annotation.at_engine.astimezone(where).date()
    return f"{began} to {text.instant(annotation.until_engine, where, with_date=not is_same_day)}"


def _outside(link: str) -> Component:
    # The API admits only http and https. The other site learns neither the page nor its window.
    return html.A(text.short(link.split("://", 1)[-1], 40), href=link, target="_blank", rel="noopener noreferrer")


def _acknowledged_cell(c: CheckpointOut) -> Component:
    acknowledged = text.MISSING if c.subtask_count is None else f"{c.acknowledged_count}/{c.subtask_count}"
    return html.Td(acknowledged, className="right number")


def _barrier_cells(c: CheckpointOut) -> list[Component]:
    return [
        html.Td(text.bounded(words, is_lower_bound=c.is_lower_bound), className="right number")
        for words in (
            text.duration(c.start_delay_max_ms),
            text.duration(c.alignment_max_ms),
            text.size(c.persisted_bytes),
        )
    ]


def _link(c: CheckpointOut, word: str) -> Component:
    return dcc.Link(f"{word} {c.checkpoint_id}", href=routes.checkpoint(c.job_id, c.run_id, c.checkpoint_id))


def _events(events: Sequence[JobEventOut], where: tzinfo, job: str | None) -> Component:
    rows = [
        html.Tr(
            [
                html.Td(text.instant(e.at, where), title=text.instant_utc(e.at), className="number"),
                html.Td(e.kind.replace("-", " ")),
                html.Td(text.short(e.text, 300)),
                html.Td([] if job is None else dcc.Link("before and after", href=routes.windows_around(job, e.at))),
            ]
        )
        for e in events[:20]
    ]
    number = len(events)
    summary = html.Summary(f"{number} {'event' if number == 1 else 'events'}: restarts, changes of settings")
    return html.Details([summary, html.Table(html.Tbody(rows), className="plain-table")], className="events")
