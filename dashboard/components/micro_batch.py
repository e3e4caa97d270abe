"""Shows a Spark micro-batch: its phases, state, sources and signs of backpressure. It has no barriers to show."""

from __future__ import annotations

from typing import Any

from dash import Output, dcc, html
from dash.development.base_component import Component

from backend.contracts.api import CheckpointDetailOut, JobDetailOut, PressureSignOut
from backend.contracts.micro_batches import BatchSourceOut, MicroBatchOut
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.verdict import Basis
from dashboard import routes, text
from dashboard.components import batch_work, cards, channels, query_state, status
from dashboard.components.attributes import attrs
from dashboard.figures import micro_batch
from dashboard.palette import Theme, Tone

HIDDEN = {"display": "none"}
SHOWN: dict[str, str] = {}
NO_BARRIERS = (
    "On Spark, each micro-batch is a checkpoint. It has no barriers, so there is no start delay, no alignment, no "
    "barrier front and no in-flight data."
)
_SIGN_WORDS = {
    "overrun": "Longer than the interval",
    "backlog-growth": "Backlog grows",
    "rows-growth": "Rows grow",
    "utilisation": "No pause between batches",
}


def card() -> Component:
    """Build the card of a micro-batch for the page of its checkpoint."""
    return html.Div(
        [
            cards.chart(
                "cp-batch",
                "Phases of the micro-batch",
                hint="in the order in which Spark runs them",
                before=html.Div([html.P(NO_BARRIERS, className="hint"), _legend()]),
                height_px=120,
            ),
            html.Div(id="cp-batch-facts"),
        ]
    )


def _legend() -> Component:
    phases = [(micro_batch.COLORS[phase], word) for phase, word in micro_batch.WORDS.items()]
    swatches = [html.Span([html.Span(className="swatch", style={"background": c}), word]) for c, word in phases]
    rest = html.Span([html.Span(className="swatch phase-ack-wait"), "other"])
    return html.Div([*swatches, rest], className="legend")


def outputs() -> dict[str, Any]:
    """Return the outputs of a checkpoint's page that depend on whether the checkpoint is a micro-batch."""
    return {
        "style": Output("cp-batch-views", "style"),
        "barriers_style": Output("cp-barrier-views", "style"),
        "chart": cards.chart_outputs("cp-batch"),
        "sources": Output("cp-batch-facts", "children"),
    }


def values(detail: CheckpointDetailOut, *, theme: Theme) -> dict[str, object]:
    """Return the values of ``outputs``.

    A micro-batch shows its phases and sources, any other checkpoint its barriers.
    """
    batches = [] if detail.batch is None else [detail.batch]
    chart = micro_batch.phases(batches, theme=theme)
    return {
        "style": SHOWN if batches else HIDDEN,
        "barriers_style": HIDDEN if batches else SHOWN,
        "chart": cards.chart_values("cp-batch", chart),
        "sources": None if detail.batch is None else _details(detail.batch),
    }


def facts(detail: CheckpointDetailOut, batch: MicroBatchOut) -> Component:
    """Build the facts of one micro-batch. Facts about state are left out for a query without state."""
    is_failed = detail.status is CheckpointStatus.FAILED
    why = "Spark does not report when a failed batch began" if is_failed else None
    shown = [
        cards.fact("Batch duration", text.duration(detail.end_to_end_duration_ms), hint=why or "trigger execution"),
        cards.fact("Batch number", str(batch.checkpoint_id), basis=batch.number_basis),
        cards.fact("Rows read", text.count(batch.input_row_count)),
        cards.fact("Processed rows per second", text.rate(batch.processed_rows_per_s)),
        cards.fact("Checkpoint log", text.duration(_log_ms(batch)), hint="offsets and commits files"),
    ]
    if (state := batch.state) is not None:
        shown += [
            cards.fact("State rows", text.count(state.row_count)),
            cards.fact("State size", text.size(detail.full_state_size_bytes)),
            cards.fact(
                "State commit",
                text.duration(state.commit_ms),
                basis=Basis.RECONSTRUCTED,
                hint=f"mean of {text.count(state.store_count)} state stores; part of running the query",
            ),
            cards.fact(
                "Snapshot lag",
                text.MISSING if state.snapshot_lag is None else f"{state.snapshot_lag} batches",
                basis=Basis.RECONSTRUCTED,
                hint="batches that a recovery would replay",
            ),
        ]
    return html.Section(cards.facts(shown), className="card", **attrs({"aria-label": "Facts"}))


def job_card() -> Component:
    """Build the card of the newest micro-batches for a job's page."""
    return html.Div(
        [
            cards.chart("job-batches", "Phases of the newest micro-batches", before=_legend()),
            html.Div(id="job-batch-work"),
            html.Div(id="job-query-state"),
        ]
    )


def job_outputs() -> dict[str, Any]:
    """Return the outputs of a job's page that depend on whether the job runs in micro-batches."""
    return {
        "style": Output("job-micro-batches", "style"),
        "pressure_style": Output("job-pressure", "style"),
        "progress_style": Output("job-progress-panel", "style"),
        "row_style": Output("job-over-time", "style"),
        "chart": cards.chart_outputs("job-batches"),
        "work": Output("job-batch-work", "children"),
        "query_state": Output("job-query-state", "children"),
    }


def job_values(job: JobDetailOut, *, theme: Theme, has_pressure: bool = True) -> dict[str, object]:
    """Return the values of ``job_outputs``.

    The page shows micro-batches if the engine runs them. It shows backpressure and progress if the engine has
    barriers, and backpressure only if there is a reading of it.
    """
    can = job.capabilities
    of_barriers = SHOWN if can.has_barriers else HIDDEN
    return {
        "style": SHOWN if can.is_micro_batched else HIDDEN,
        "pressure_style": of_barriers if has_pressure else HIDDEN,
        "progress_style": of_barriers,
        # Without the progress panel, the timeline takes the whole row.
        "row_style": SHOWN if can.has_barriers else {"gridTemplateColumns": "minmax(0, 1fr)"},
        "chart": cards.chart_values("job-batches", micro_batch.phases(job.batches, theme=theme)),
        "work": _newest_work(job),
        "query_state": query_state.cards_of(job),
    }


def _newest_work(job: JobDetailOut) -> Component | None:
    """Build the card of the newest batch of which the Spark jobs are known; return None if there is none."""
    known = [b for b in job.batches if b.work is not None]
    if not known:
        return None
    newest = max(known, key=lambda b: b.triggered_at)
    page = routes.checkpoint(job.id, newest.run_id, newest.checkpoint_id)
    return batch_work.card(newest, link=dcc.Link(f"batch {newest.checkpoint_id}", href=page))


def signs(pressure_signs: list[PressureSignOut]) -> Component | None:
    """Build the table of the signs of backpressure, each with its basis; return None if there are none."""
    if not pressure_signs:
        return None
    rows = [
        html.Tr(
            [
                html.Td(_SIGN_WORDS[s.sign.value]),
                html.Td(
                    status.badge("raised", "warning", Tone.WARN)
                    if s.is_raised
                    else html.Span(text.MISSING if s.value is None else "no", className="hint"),
                    className="state",
                ),
                html.Td([s.statement, " ", status.basis(s.basis)]),
            ]
        )
        for s in pressure_signs
    ]
    return html.Table(html.Tbody(rows), className="plain-table")


def _details(batch: MicroBatchOut) -> Component | None:
    found = (batch_work.card(batch), query_state.by_operator(batch), _sources(batch), channels.of_batch(batch))
    parts = [part for part in found if part is not None]
    return html.Div(parts) if len(parts) > 1 else next(iter(parts), None)


def _sources(batch: MicroBatchOut) -> Component | None:
    if not batch.sources:
        return None
    heads = ("Source", "Rows", "From offset", "To offset", "Newest offset", "Backlog")
    body = [_source(s) for s in batch.sources]
    table = html.Table([html.Thead(html.Tr([html.Th(h) for h in heads])), html.Tbody(body)], className="plain-table")
    hint = "the backlog is what was left after the batch, in the units of the source"
    return cards.card("Sources", html.Div(table, className="table-scroll"), hint=hint)


def _source(source: BatchSourceOut) -> Component:
    offsets = (source.start_offset, source.end_offset, source.latest_offset)
    return html.Tr(
        [
            html.Td(text.short(source.description, 80), title=source.description),
            html.Td(text.count(source.input_row_count), className="number"),
            *(html.Td(html.Code(text.short(o, 40)) if o else _missing()) for o in offsets),
            html.Td(_missing() if source.backlog is None else text.count(source.backlog), className="number"),
        ]
    )


def _missing() -> Component:
    return html.Span(text.MISSING, title="the source does not report it", className="missing")


def _log_ms(batch: MicroBatchOut) -> int | None:
    known = [p.duration_ms for p in batch.phases if p.phase.value in ("wal-commit", "commit-offsets")]
    return sum(known) if known else None
