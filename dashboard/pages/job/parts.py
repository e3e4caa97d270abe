"""Builds the parts of a job's page: head, settings and counts, legends and source."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from dash import dcc, html
from dash.development.base_component import Component

from backend.contracts.api import CheckpointConfigOut, CheckpointOut, JobDetailOut
from backend.contracts.engines import CapabilitiesOut
from backend.domain.checkpoint import QueryConsistency, guarantee_of, query_consistency
from backend.domain.observation import JobState
from backend.domain.replay_debt import debt_words, origin_words
from backend.domain.target import TargetState
from backend.domain.text import capitalised
from backend.domain.verdict import Basis
from dashboard import routes, text
from dashboard.components import cards, channels, freshness, micro_batch, status
from dashboard.components.attributes import attrs
from dashboard.components.restored_from import restored_from
from dashboard.palette import Tone
from dashboard.span import Span, epoch_ms

PRESSURE_NOW = "now; mean over the subtasks of a vertex"

PRESSURE_THEN = "in the chosen range; mean over the readings and the subtasks of a vertex"


# The pressure of a chosen range is shown from this long before its first trigger until this long after its last one.
_AROUND_MS = 60_000
_SPILLING_WORDS = {"continuous": "when it is sent", "ad-hoc": "when it is overtaken"}


def timeline_legend(engine: CapabilitiesOut | None, checkpoints: Sequence[CheckpointOut] = ()) -> list[Component]:
    if engine is not None and engine.is_micro_batched:
        return [
            *_signs("● completed", "✕ failed"),
            html.Span("one mark for each micro-batch, reported when it has ended"),
        ]
    if engine is not None and not engine.has_barriers:
        return _signs("● completed", "■ savepoint", "✕ failed", "○ in progress")
    return [
        *_signs("● completed", "■ savepoint", "✕ failed", "○ in progress"),
        *(html.Span([html.Span(className=f"swatch mode-{m}"), status.mode_word(m)]) for m in _modes(checkpoints)),
        html.Span("size: persisted in-flight bytes"),
    ]


def _modes(checkpoints: Sequence[CheckpointOut]) -> list[str]:
    """Return the modes in the legend: aligned and unaligned, and those of the checkpoints."""
    return list(dict.fromkeys(("aligned", "unaligned", *sorted({c.mode for c in checkpoints if c.mode is not None}))))


def _signs(*words: str) -> list[Component]:
    return [html.Span(word) for word in words]


def steps_legend() -> list[Component]:
    """Build the legend of a range that is drawn in steps."""
    return [html.Span("one value for each step, over its completed checkpoints; bars: failed checkpoints")]


def head(job: JobDetailOut) -> list[Component]:
    is_past = freshness.is_stale(job.freshness)
    chips: list[Component] = [
        freshness.past_health(job.health) if freshness.is_past(job.freshness) else status.health(job.health),
        *((status.mode(job.mode),) if job.capabilities.has_barriers else ()),
        html.Span(f"{job.capabilities.name}: {_engine_state(job)}", className="chip", title="engine and state"),
    ]
    number = job.open_advice_count
    words = f"Advice ({number})" if number else "Advice"
    chips.append(cards.link_button(words, routes.advice(job.id), "bolt", hint="recommendations for this job"))
    if job.capabilities.has_barriers:
        chips.append(cards.link_button("What if", routes.what_if(job.id), "gauge", hint="try other settings"))
    chips += status.clock(job.clock_offset_ms)
    if job.target_state != TargetState.OK and not is_past:
        chips.append(status.badge(f"target {job.target_state}: old data", "warning", Tone.BAD))
    return [
        html.Div(
            [
                html.Div([dcc.Link("Fleet", href=routes.fleet()), f" / {job.target_name}"], className="crumbs"),
                html.Div([html.H1(job.name), *chips], className="title-row"),
            ]
        ),
        cards.facts(
            [
                *_debt(job),
                cards.fact("Success 24 h", text.percent(job.success_24h_ratio)),
                _percentile("p50", job.duration_p50_ms, is_lower_bound=job.is_p50_lower_bound),
                _percentile("p99", job.duration_p99_ms, is_lower_bound=job.is_p99_lower_bound),
                *_interval_and_timeout(job),
            ]
        ),
    ]


def _debt(job: JobDetailOut) -> list[html.Div]:
    """Build the replay debt, which the browser counts up by its own clock."""
    debt = job.replay_debt
    if debt is None:
        return []
    words = origin_words(debt.origin, debt.checkpoint_id)
    if freshness.is_stale(job.freshness):
        was = debt_words(job.replay_debt_ms or 0.0, is_at_least=debt.is_at_least)
        hint = f"What a failure would have replayed at the last reading, {words}"
        return [cards.fact("Replay debt, was", was, hint=hint)]
    # The browser counts by the clock of this service, and ``since`` is by the engine's clock.
    since = debt.since - timedelta(milliseconds=job.clock_offset_ms or 0)
    value = html.Span(
        "at least " if debt.is_at_least else "",
        className="debt fact-value number",
        **attrs({"data-instant": since.isoformat()}),
    )
    hint = f"What a failure now would replay, {words}"
    return [cards.fact_of("Replay debt", [value, status.basis(Basis.MEASURED), *_backlog(job, since)], hint=hint)]


def _backlog(job: JobDetailOut, since: datetime) -> list[Component]:
    """Build the records of the debt and the time to catch up, which the browser counts up like the debt.

    Both grow by a constant with each millisecond of the debt: at the rate of the input, and at the pace of the job.
    """
    debt, catch_up_ms, age_ms = job.replay_debt, job.replay_debt_catch_up_ms, job.replay_debt_ms
    parts: list[Component] = []
    if debt is not None and debt.input_per_s is not None:
        counts = {"data-instant": since.isoformat(), "data-rate": str(debt.input_per_s / 1000)}
        parts.append(
            html.Span([" ", html.Span(className="debt-records", **attrs(counts)), " records"], className="hint")
        )
    if debt is not None and debt.use_ratio is not None and catch_up_ms is not None and age_ms is not None:
        pace = debt.use_ratio / (1 - debt.use_ratio)
        counts = {
            "data-instant": since.isoformat(),
            "data-pace": str(pace),
            "data-base": str(catch_up_ms - pace * age_ms),
        }
        parts.append(
            html.Span(
                [" catch-up ", html.Span(className="debt-catch-up", **attrs(counts)), " (predicted)"], className="hint"
            )
        )
    return parts


def _percentile(word: str, value_ms: float | None, *, is_lower_bound: bool) -> html.Div:
    took = text.bounded(text.duration(value_ms), is_lower_bound=is_lower_bound)
    hint = "a lower bound: an expired checkpoint counts with the time until it expired" if is_lower_bound else None
    return cards.fact(word, took, hint=hint)


def pressure_link(job: JobDetailOut, chosen: Sequence[CheckpointOut], span: Span) -> Component:
    """Build the link to the job's pressure over time: of the vertex that the verdict names, and in the chosen range."""
    ends = None
    if not span.is_whole and chosen:
        times = [epoch_ms(c.triggered_at) for c in chosen]
        ends = min(times) - _AROUND_MS, max(times) + _AROUND_MS
    return dcc.Link("Pressure over time", href=routes.pressure(job.id, vertex=job.verdict.vertex_id, ends_ms=ends))


def growth(job: JobDetailOut) -> list[Component]:
    """Build the sentence on what grows over days. The verdict above sees only the newest checkpoints."""
    growing = job.growth
    if growing is None:
        return []
    words = capitalised(growing.sentence)
    hint = "medians of the stored history, compared at the same times of day"
    more = dcc.Link("What cures it", href=routes.cause("growth"))
    return [html.Span([words, " (reconstructed). ", more], title=hint)]


def _engine_state(job: JobDetailOut) -> str:
    state = job.run.engine_state.lower()
    if job.run.state is JobState.UNREADABLE:
        return f"{state}, cannot be read"
    is_past = job.target_state == TargetState.SILENT or freshness.is_stale(job.freshness)
    return f"{state} at the last report" if is_past else state


def _interval_and_timeout(job: JobDetailOut) -> list[html.Div]:
    if job.capabilities.is_micro_batched:
        is_reported = job.config is not None and job.config.interval_ms is not None
        hint = "reported by the job" if is_reported else "estimated from the pauses between batches"
        basis = None if is_reported else Basis.RECONSTRUCTED
        return [cards.fact("Trigger interval", text.duration(job.interval_ms), basis=basis, hint=hint)]
    if job.config is not None and job.config.is_off:
        return [cards.fact("Interval", "off", basis=None, hint="checkpointing is off")]
    return [
        cards.fact("Interval", text.duration(job.interval_ms), basis=None, hint="configured"),
        cards.fact("Timeout", text.duration(job.timeout_ms), basis=None, hint="configured"),
    ]


def facts(job: JobDetailOut) -> Component:
    """Build the card of settings and counts or, for an engine with micro-batches, that of its signs."""
    config, counts = job.config, job.counts
    rows: list[tuple[str, str]] = []
    if config is not None:
        rows += [
            ("Mode", (config.mode or text.MISSING).replace("_", " ")),
            *_alignment(config),
            ("Consistent for queries", _queries(config)),
            ("Debloating target", text.duration(config.debloat_target_ms)),
            ("Min pause", text.duration(config.min_pause_ms)),
            ("Max concurrent", text.count(config.max_concurrent)),
            ("Tolerable failures", _tolerable(config.tolerable_failed_count)),
            ("State backend", config.state_backend or text.MISSING),
            ("Storage", config.checkpoint_storage or text.MISSING),
        ]
    if counts is not None:
        rows += [
            ("Completed", text.count(counts.completed)),
            ("Failed", text.count(counts.failed)),
            ("Failed, not listed", text.count(counts.failed_unlisted)),
            ("Restored", text.count(counts.restored)),
        ]
    if job.capabilities.is_micro_batched:
        return _batch_facts(job)
    rows.append(("Restarts", text.count(job.run.restart_count)))
    pairs = [html.Div([html.Dt(k, className="hint"), html.Dd(v, className="number")]) for k, v in rows]
    parts: list[Component] = [html.Dl(pairs, className="settings")]
    if counts is not None and counts.restored_from is not None:
        parts.append(restored_from(counts.restored_from, job.id))
    parts += _problems(job)
    if job.exceptions:
        parts.append(html.Details([html.Summary(f"{len(job.exceptions)} exceptions"), *_exceptions(job.exceptions)]))
    return cards.card("Settings and counts", parts, hint="as reported by the engine")


def _alignment(config: CheckpointConfigOut) -> list[tuple[str, str]]:
    rows = [("Unaligned", _yes(config.is_unaligned_enabled))]
    if config.protocol is None:
        rows.append(("Aligned timeout", text.duration(config.aligned_timeout_ms)))
    else:
        # Flink's word would mislead: such checkpoints have in-flight data, but no aligned timeout.
        rows = [("Protocol", status.mode_word(config.protocol))]
    if config.spilling is not None:
        rows.append(("In-flight data is written", _SPILLING_WORDS.get(config.spilling, config.spilling)))
    return rows


_QUERY_WORDS = {
    QueryConsistency.ALL: "each checkpoint",
    QueryConsistency.EMPTY: "only without in-flight data",
    QueryConsistency.NONE: "none: at least once",
    None: text.MISSING,
}


def _queries(config: CheckpointConfigOut) -> str:
    """Return which checkpoints are consistent for programs that read the state of several operators from them."""
    return _QUERY_WORDS[query_consistency(guarantee_of(config.mode), is_unaligned=config.is_unaligned_enabled)]


def _batch_facts(job: JobDetailOut) -> Component:
    """Build the signs of backpressure.

    They replace settings and counts, which engines with micro-batches do not report.
    """
    parts: list[Component | None] = [micro_batch.signs(job.signs), *_problems(job)]
    if job.exceptions:
        parts.append(html.Details([html.Summary(f"{len(job.exceptions)} exceptions"), *_exceptions(job.exceptions)]))
    hint = "Spark does not measure backpressure; these signs indicate it"
    signs = cards.card("Signs of backpressure", [p for p in parts if p is not None], hint=hint)
    of_channels = channels.of_job(job)
    return signs if of_channels is None else html.Div([signs, of_channels])


def _problems(job: JobDetailOut) -> list[html.P]:
    return [html.P(text.short(p, 400), className="hint") for p in job.problems]


def _exceptions(exceptions: list[str]) -> list[Component]:
    return [html.P(text.short(e, 400), className="hint") for e in exceptions[:5]]


def _yes(value: bool | None) -> str:
    return text.MISSING if value is None else ("enabled" if value else "disabled")


def _tolerable(value: int | None) -> str:
    # Flink reports an unlimited number as 2^31 - 1.
    return "unlimited" if value is not None and value >= 2**31 - 1 else text.count(value)


def source(job: JobDetailOut) -> Component:
    return cards.source_line(
        [
            f"Source: {job.capabilities.source}, target {job.target_name}",
            html.Span(channels.read_from(job.channels)) if job.channels else cards.age("read", job.observed_at),
            f"run {job.run_id}",
        ]
    )
