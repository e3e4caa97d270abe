"""Builds the state and the results of a backtest: what would have been said, and how it would have fared."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo
from typing import Final

from dash import dcc, html
from dash.development.base_component import Component

from backend.contracts.backtests import (
    AdviceReplayOut,
    BacktestIn,
    BacktestOut,
    EpisodeOut,
    ReplayedCardOut,
    ReplayedPredictionOut,
    VerdictReplayOut,
    WarningReplayOut,
    WarningScoreOut,
)
from backend.contracts.simulations import SimulationState
from backend.domain.advice import AdviceState, Metric
from backend.domain.verdict import Basis
from dashboard import routes, text
from dashboard.components import cards, simulations, status
from dashboard.components.attributes import attrs
from dashboard.figures.backtest import cause_of
from dashboard.palette import Tone

ROWS_MAX: Final = 12
"""Of longer lists the newest are shown."""
_STATES: Final = {
    AdviceState.NEW: "open at the last checkpoint",
    AdviceState.EXPIRED: "withdrawn",
    AdviceState.APPLIED: "applied, not measured yet",
    AdviceState.VERIFIED: "applied and measured",
    AdviceState.REGRESSED: "applied, and worse than before",
    AdviceState.ROLLED_BACK: "applied, then changed back",
}
_NUMBERS: Final = (
    "Suffering before", "Said", "Held", "As stored", "Recall", "Lead, median", "Pages", "False pages"
)  # fmt: skip
"""The heads of columns with numbers."""
_METRICS: Final = {
    Metric.DURATION: "duration",
    Metric.PERSISTED: "persisted data",
    Metric.EXPIRED: "expired",
    Metric.RESTORE: "longer restore",
    Metric.WRITTEN: "written",
    Metric.RECOVERY: "recovery",
    Metric.LOST: "time lost",
}


def state_of(backtest: BacktestOut) -> list[Component]:
    """Build the state of a backtest."""
    match backtest.state:
        case SimulationState.QUEUED:
            return simulations.queued(backtest)
        case SimulationState.RUNNING:
            most = text.counted(backtest.request.checkpoint_count, "checkpoint")
            return simulations.running(
                backtest, f"{text.percent(backtest.progress_ratio)} of at most {most} are replayed."
            )
        case SimulationState.FAILED:
            return simulations.state(
                "failed", "cross", Tone.BAD, f"It failed: {backtest.reason or 'no reason is known'}."
            )
        case SimulationState.CANCELLED:
            return simulations.state("cancelled", "cross", Tone.QUIET, "It was cancelled. Run it again for a result.")
        case SimulationState.COMPLETED:
            kept = "" if backtest.expires_at is None else f" until {text.instant_utc(backtest.expires_at)[:16]} UTC"
            words = f"Replayed. {_asked(backtest.request)} This result is kept{kept}."
            return simulations.state("completed", "check", Tone.GOOD, words)


def _asked(request: BacktestIn) -> str:
    """Return the checkpoints that a result is of. The controls may ask for others already."""
    since = "" if request.since is None else f", triggered from {text.instant_utc(request.since)[:16]} UTC on"
    # Thousands are written as on the control.
    count = f"{text.count(request.checkpoint_count)} checkpoint{'' if request.checkpoint_count == 1 else 's'}"
    return f"It is of at most the newest {count}{since}."


def not_run() -> list[Component]:
    """Build the state before a backtest was started."""
    words = "The present rules are replayed over the stored checkpoints. Nothing is changed, and no alert is sent."
    return simulations.state("not run yet", "play", Tone.QUIET, words)


def not_kept() -> list[Component]:
    """Build the state if the address names a backtest that is not stored any more."""
    words = "This backtest is not known any more: a result is kept for a day. Run it again."
    return simulations.state("not kept", "question", Tone.QUIET, words)


def left_out() -> Component:
    """Build what stands in place of a part that was not asked for."""
    return html.P("It was not asked for.", className="hint")


# --- verdicts ---------------------------------------------------------------------------------------------------------


def verdict_words(replay: VerdictReplayOut | None) -> list[Component]:
    """Build the sentence on the replayed verdicts."""
    if replay is None:
        return [left_out()]
    if not replay.checkpoint_count:
        return [html.P("No ended checkpoint is stored in this range, so no verdict was replayed.")]
    count = f"The verdict was replayed at {text.counted(replay.checkpoint_count, 'checkpoint')}."
    if not replay.episodes:
        return [html.P(f"{count} It would have named no cause.", className="verdict-sentence")]
    words = f"{count} It would have named a cause in {text.counted(replay.episode_count, 'episode')}."
    facts = [
        cards.fact(
            "Stable",
            text.percent(replay.stable_ratio),
            basis=Basis.RECONSTRUCTED,
            hint="share of the checkpoints of the episodes at which the cause was named",
        ),
        cards.fact(
            "Held",
            text.percent(replay.held_ratio),
            basis=Basis.RECONSTRUCTED,
            hint="of the ten checkpoints after a first statement, those in which the named place was the slowest",
        ),
        cards.fact(
            "As stored",
            text.percent(replay.agreed_ratio),
            basis=Basis.RECONSTRUCTED,
            hint="of the checkpoints with a stored verdict, those whose verdict named the same cause",
        ),
    ]
    return [html.P(words, className="verdict-sentence"), cards.facts(facts)]


def episodes(job: str, replay: VerdictReplayOut | None, where: tzinfo) -> Component | None:
    """Build the table of what the verdict would have said, newest first."""
    if replay is None or not replay.episodes:
        return None
    shown = replay.episodes[::-1][:ROWS_MAX]
    rows = [_episode(job, e, where) for e in shown]
    heads = ["First said", "Cause", "What it said first", "Suffering before", "Said", "Held", "As stored"]
    return _table(heads, rows, replay.episode_count, "The table of the chart has the newest 100.")


def _episode(job: str, one: EpisodeOut, where: tzinfo) -> html.Tr:
    link = dcc.Link(
        f"checkpoint {one.first_checkpoint_id}", href=routes.checkpoint(job, one.run_id, one.first_checkpoint_id)
    )
    at = html.Td([text.instant(one.first_at, where), html.Br(), link], title=text.instant_utc(one.first_at))
    return html.Tr(
        [
            at,
            html.Td(cause_of(one, {k.value: word for k, word in status.KIND_WORDS.items()})),
            html.Td(one.sentence),
            html.Td(text.count(one.unnamed_count), className="right number"),
            html.Td(f"{one.said_count} of {one.checkpoint_count}", className="right number"),
            _share(one.held_count, one.followed_count, "no checkpoint after it could be judged"),
            _share(one.stored_same_count, one.stored_count, "no verdict is stored for these checkpoints"),
        ]
    )


def _share(part: int, whole: int, why_not: str) -> html.Td:
    if not whole:
        return html.Td(text.MISSING, className="right missing", title=why_not)
    return html.Td(f"{part} of {whole}", className="right number")


# --- advice -----------------------------------------------------------------------------------------------------------


def advice_words(replay: AdviceReplayOut | None) -> list[Component]:
    """Build the sentence on the replayed advice."""
    if replay is None:
        return [left_out()]
    if not replay.opened_count:
        said = "The rules would have opened no card." if replay.checkpoint_count else "No ended checkpoint is stored."
        return [html.P(said, className="verdict-sentence")]
    words = f"The rules would have opened {text.counted(replay.opened_count, 'card')}"
    parts = [
        f"{count} {word}"
        for count, word in (
            (replay.withdrawn_count, "withdrawn later"),
            (replay.applied_count, "applied"),
            (replay.regressed_count, "worse than before"),
            (replay.rolled_back_count, "changed back"),
        )
        if count
    ]
    tail = f": {', '.join(parts)}." if parts else "; none of them was applied."
    held = (
        f" {replay.held_count} of {text.counted(replay.predicted_count, 'measured value')} were inside their intervals."
        if replay.predicted_count
        else " No change was made, so nothing was measured: the effects are predictions."
    )
    return [html.P(words + tail + held, className="verdict-sentence")]


def replayed_cards(job: str, replay: AdviceReplayOut | None, where: tzinfo) -> Component | None:
    """Build the table of the cards that would have been opened, newest first."""
    if replay is None or not replay.cards:
        return None
    rows = [_card(job, c, where) for c in replay.cards[::-1][:ROWS_MAX]]
    more = "The table of the chart has those that predict a duration, of the newest 100."
    return _table(["Opened", "Advice", "What came of it", "Effect"], rows, replay.opened_count, more)


def _card(job: str, one: ReplayedCardOut, where: tzinfo) -> html.Tr:
    link = dcc.Link(
        f"checkpoint {one.opened_checkpoint_id}", href=routes.checkpoint(job, one.run_id, one.opened_checkpoint_id)
    )
    came = _STATES.get(one.state, one.state.value)
    given = f"given at {text.counted(one.given_count, 'checkpoint')}, last {text.instant(one.last_given_at, where)}"
    return html.Tr(
        [
            html.Td([text.instant(one.opened_at, where), html.Br(), link], title=text.instant_utc(one.opened_at)),
            html.Td([html.B(one.headline), html.Br(), html.Span(", ".join(one.rules), className="hint")]),
            html.Td([html.B(came), html.Br(), html.Span(f"{one.state_reason}; {given}", className="hint")]),
            html.Td([_effect(p) for p in one.predictions]),
        ]
    )


def _effect(one: ReplayedPredictionOut) -> Component:
    def words(value: float | None) -> str:
        return text.evidence_value(value, one.unit, one.metric)

    parts: list[Component | str] = [
        f"{_METRICS.get(one.metric, one.metric.value.replace('_', ' '))}: {words(one.value)}"
        f" ({words(one.low)} to {words(one.high)}) ",
        status.basis(one.basis),
    ]
    if one.measured is not None:
        parts.append(f", {words(one.measured)} measured, {'inside' if one.is_inside else 'outside'}")
    return html.Div(parts, title=one.method)


# --- warnings ---------------------------------------------------------------------------------------------------------


def warning_words(replay: WarningReplayOut | None) -> list[Component]:
    """Build the sentence and the table on the replayed warnings of timeouts."""
    if replay is None:
        return [left_out()]
    if not replay.checkpoint_count:
        return [html.P("No ended checkpoint with acknowledgements is stored, so no warning was replayed.")]
    score = replay.predicted
    count = text.counted(replay.checkpoint_count, "checkpoint")
    if not score.expired_count and not score.page_count:
        words = f"None of {count} expired, and none would have been warned of."
    elif not score.expired_count:
        words = f"None of {count} expired, but {text.counted(score.page_count, 'warning')} would have been sent."
    else:
        words = (
            f"{score.caught_count} of {text.counted(score.expired_count, 'expired checkpoint')} would have been warned"
            f" of, with {text.counted(score.false_page_count, 'false page')}."
        )
    rows = [_score("Predicted finish", score), _score("Rule by age, after 80 %", replay.plain_rule)]
    parts: list[Component] = [
        html.P(words, className="verdict-sentence"),
        html.Div(
            _with_heads(["Way to warn", "Recall", "Lead, median", "Pages", "False pages"], rows),
            className="table-scroll",
        ),
    ]
    if replay.skipped_count:
        left = text.counted(replay.skipped_count, "ended checkpoint")
        parts.append(html.P(f"{left} left out: the acknowledgements are not stored.", className="hint"))
    return parts


def _score(name: str, one: WarningScoreOut) -> html.Tr:
    def ratio(value: float | None) -> html.Td:
        if value is None:
            return html.Td(text.MISSING, className="right missing", title="no checkpoint expired")
        return html.Td(text.percent(value), className="right number")

    return html.Tr(
        [
            html.Th(name, **attrs({"scope": "row"})),
            ratio(one.recall_ratio),
            ratio(one.lead_median_ratio),
            html.Td(text.count(one.page_count), className="right number"),
            html.Td(text.count(one.false_page_count), className="right number"),
        ]
    )


def _with_heads(heads: Sequence[str], rows: Sequence[html.Tr]) -> Component:
    """Build a table. The heads of columns with numbers are aligned like the numbers, to the right."""
    cells = [html.Th(head, className="right" if head in _NUMBERS else None) for head in heads]
    return html.Table([html.Thead(html.Tr(cells)), html.Tbody(list(rows))], className="plain-table")


def _table(heads: Sequence[str], rows: Sequence[html.Tr], count: int, more: str) -> Component:
    """Build the table of the newest of ``count`` entries. ``more`` says where the others are."""
    parts: list[Component] = [html.Div(_with_heads(heads, rows), className="table-scroll backtest-table")]
    if count > len(rows):
        parts.append(html.P(f"The newest {len(rows)} of {count}. {more}", className="hint"))
    return html.Div(parts)
