"""Shows the Spark jobs and stages of one micro-batch: which stage took its time, how uneven its tasks were, and why."""

from __future__ import annotations

from dash import html
from dash.development.base_component import Component

from backend.contracts.micro_batches import BatchWorkOut, MicroBatchOut, StageWorkOut
from backend.domain.verdict import Basis
from dashboard import text
from dashboard.components import cards, status

TITLE = "Spark jobs and stages"
_HEADS = (
    "Stage", "Time", "Tasks", "Longest task", "Median task", "Longest / median", "Rows: most / median", "Shuffle read",
    "Shuffle written", "Spilled to disk", "Garbage collection",
)  # fmt: skip
_UNEVEN = 3.0
"""A ratio of the longest task to the median one from which on it is marked (``analysis.queries.inside_jobs``)."""
_NOT_KNOWN = (
    "The Spark jobs of this batch are not known. The event log and the driver's REST API have them, the listener does"
    " not. They are kept of the first batch of a run, of batches that take 1 s or longer and 1.5 times the median of"
    " those before, and of one batch of 1 s or longer every 15 s."
)


def card(batch: MicroBatchOut, *, link: Component | None = None) -> Component:
    """Build the card of one batch. ``link`` opens the batch's page; on its own page there is none."""
    work = batch.work
    if work is None:
        return cards.card(TITLE, html.P(_NOT_KNOWN, className="hint"))
    hint = "the stages that took longest" if link is None else "of the newest batch that has them"
    rows = [_row(stage) for stage in work.stages]
    parts: list[Component] = [_lead(batch, work), _reported_by(work)]
    if link is not None:
        parts.insert(0, html.Div(link, className="links-out"))
    if rows:
        table = cards.table(_HEADS, rows, numbers=_HEADS[1:])
        parts.append(html.Div(table, className="table-scroll spaced"))
    left_out = work.stage_count - len(work.stages)
    if left_out > 0:
        parts.append(html.P(f"{text.counted(left_out, 'shorter stage')} left out.", className="hint spaced"))
    return cards.card(TITLE, parts, hint=hint)


def _lead(batch: MicroBatchOut, work: BatchWorkOut) -> Component:
    jobs, took = text.counted(work.job_count, "Spark job"), text.duration(batch.duration_ms)
    said = f"{jobs} with {text.counted(work.stage_count, 'stage')} ran in this batch, which took {took}."
    if work.jobs_ms is None or work.outside_ms is None:
        return html.P([said, " For how long at least one of them ran is not known."])
    share = f" ({text.percent(work.outside_ms / batch.duration_ms)})" if batch.duration_ms else ""
    return html.P(
        [
            said,
            f" At least one of them ran for {text.duration(work.jobs_ms)}. For {text.duration(work.outside_ms)}{share}"
            " none ran: the driver planned, wrote its log, committed to the sink, ran code of foreachBatch or waited. ",
            status.basis(Basis.RECONSTRUCTED),
        ]
    )


def _reported_by(work: BatchWorkOut) -> Component:
    """Name the channel that reported the jobs, with its target if the query has several."""
    if work.channel is None:
        return html.P(
            f"Reported by: {text.MISSING}", className="hint", title="which channel reported them is not known"
        )
    target = "" if work.target_name is None else f" {work.target_name}"
    return html.P(f"Reported by: {work.channel}{target}", className="hint")


def _row(stage: StageWorkOut) -> html.Tr:
    # Spark's own pages say "retry" too.
    retry = "" if stage.attempt == 0 else f" (retry {stage.attempt})"
    is_uneven = stage.task_ratio is not None and stage.task_ratio >= _UNEVEN and stage.task_count > 1
    failed = f", {stage.failed_task_count} failed" if stage.failed_task_count else ""
    return html.Tr(
        [
            html.Td(
                [f"Stage {stage.stage_id}{retry}", html.Div(text.short(stage.name, 60), className="hint")],
                title=stage.name,
            ),
            _number(text.duration(stage.duration_ms)),
            _number(f"{text.count(stage.task_count)}{failed}"),
            _number(text.duration(stage.task_max_ms)),
            _number(text.duration(stage.task_median_ms)),
            html.Td(
                html.Strong(_ratio(stage.task_ratio)) if is_uneven else _ratio(stage.task_ratio),
                className="right number",
            ),
            html.Td(_rows(stage), className="right number", title="the most that a task read, and the median"),
            _number(text.size(stage.shuffle_read_bytes)),
            _number(text.size(stage.shuffle_write_bytes)),
            html.Td(
                text.size(stage.disk_spill_bytes),
                className="right number",
                title=f"{text.size(stage.memory_spill_bytes)} in memory before it was spilled",
            ),
            html.Td(
                text.percent(stage.gc_ratio),
                className="right number",
                title=f"{text.duration(stage.gc_ms)} of {text.duration(stage.run_ms)} of all its tasks",
            ),
        ]
    )


def _number(words: str) -> html.Td:
    return html.Td(words, className="right number")


def _ratio(ratio: float | None) -> str:
    return text.MISSING if ratio is None else f"{text.factor(ratio)}×"


def _rows(stage: StageWorkOut) -> str:
    if stage.rows_max is None:
        return text.MISSING
    return f"{text.count(stage.rows_max)} / {text.count(stage.rows_median)}"
