"""The replayed advice as lines of a table, as a document, and as a part of the page with a chart."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from backend.backtest.cards import AdviceReplay, AdviceScore, Prediction, ReplayedCard
from backend.backtest.jobs import JobResult
from backend.backtest.parts import (
    CARDS_SHOWN,
    LEGEND,
    NAME_WIDTH,
    Named,
    cells,
    instant,
    number,
    percent,
    scores_of,
    short,
)
from backend.domain.advice import AdviceState

_PREDICTED, _HELD, _MISSED = "#8a93a3", "#0072b2", "#d55e00"
_METRICS = {
    "end_to_end_duration_ms": "duration",
    "persisted_bytes": "persisted in-flight data",
    "expired_ratio": "expired",
    "restore_extra_ms": "longer restore",
    "checkpointed_size_bytes": "written bytes",
    "open_ratio": "time with a checkpoint",
    "replayed_ms": "replayed input",
    "recovery_ms": "recovery",
    "lost_ratio": "lost time",
    "failovers_per_day": "restarts a day",
    "stored_bytes": "stored bytes",
    "records_per_s": "records a second",
}


def replays(results: Sequence[Named]) -> list[tuple[str, AdviceReplay]]:
    """Return the replays of the advice, by the names of the jobs."""
    return [(name, result.advice) for name, result in results if result.advice is not None]


def table(results: Sequence[Named]) -> Iterator[str]:
    """Yield the lines of the table: each job and all of them, then the newest cards with their predictions."""
    jobs = replays(results)
    yield f"{'job':<{NAME_WIDTH}}{'cards':>6}{'withdrawn':>10}{'applied':>8}{'worse':>6}{'inside':>12}  topics"
    for name, score in scores_of(jobs, AdviceScore):
        yield _row(name, score)
    for name, card in _newest(jobs):
        yield ""
        yield f"{short(name):<{NAME_WIDTH}}{instant(card.opened_at)}  {card.headline}"
        yield f"{'':<{NAME_WIDTH}}{_end_of(card)}"
        for prediction in card.predictions:
            yield f"{'':<{NAME_WIDTH}}{_words(prediction)}"


def _row(name: str, score: AdviceScore) -> str:
    topics = ", ".join(f"{topic} {count}" for topic, count in score.topics.items())
    counts = f"{score.opened_count:>6}{score.withdrawn_count:>10}{score.applied_count:>8}{score.regressed_count:>6}"
    return f"{short(name):<{NAME_WIDTH}}{counts}{_inside(score):>12}  {topics}"


def _inside(score: AdviceScore) -> str:
    return f"{score.held_count} of {score.predicted_count}" if score.predicted_count else "–"


def _end_of(card: ReplayedCard) -> str:
    many = "1 checkpoint" if card.given_count == 1 else f"{card.given_count} checkpoints"
    given = f"given at {many}, last {instant(card.last_given_at)}"
    return f"{given}; {AdviceState(card.state).word()} since {instant(card.state_at)}: {card.state_reason}"


def _words(p: Prediction) -> str:
    name, unit = _METRICS.get(p.metric, p.metric), p.unit
    interval = f"{number(p.low, unit)} to {number(p.high, unit)}"
    text = f"{name}: {number(p.before, unit)} before, {number(p.value, unit)} ({interval}) {p.basis}"
    if p.measured is None:
        return text
    return f"{text}, {number(p.measured, unit)} measured, {'inside' if p.is_inside else 'outside'}"


def _newest(found: Sequence[tuple[str, AdviceReplay]]) -> list[tuple[str, ReplayedCard]]:
    """Return the newest cards of all jobs, oldest first."""
    cards = [(name, card) for name, replay in found for card in replay.cards]
    return sorted(cards, key=lambda row: (row[1].opened_at, row[0], row[1].topic))[-CARDS_SHOWN:]


def document(result: JobResult) -> dict[str, Any] | None:
    """Return the advice on one job as a document of JSON."""
    if result.advice is None:
        return None
    return {**result.advice.score.document(), "cards": [card_document(card) for card in result.advice.cards]}


def card_document(card: ReplayedCard) -> dict[str, Any]:
    """Return a card as a document of JSON."""
    changes = [{"key": key, "current": current, "proposed": proposed} for key, current, proposed in card.changes]
    predictions = [asdict(p) | {"is_inside": p.is_inside} for p in card.predictions]
    return asdict(card) | {"changes": changes, "predictions": predictions}


def section(results: Sequence[Named]) -> str:
    """Return the part of the page."""
    jobs = replays(results)
    rows = "".join(
        cells(
            name,
            s.opened_count,
            s.withdrawn_count,
            s.applied_count,
            s.regressed_count,
            s.rolled_back_count,
            _inside(s),
            percent(s.held_ratio),
        )
        for name, s in scores_of(jobs, AdviceScore)
    )
    cards = "".join(
        f"<tr><td>{html.escape(name)}<td>{instant(card.opened_at)}<td>{html.escape(card.headline)}"
        f"<td>{html.escape(_end_of(card))}<td>{'<br>'.join(html.escape(_words(p)) for p in card.predictions)}"
        for name, card in reversed(_newest(jobs))
    )
    return f"""<h2>Advice</h2>
<p>The cards that would have been opened at the end of a checkpoint. A card is <em>applied</em> if the engine
reported the proposed settings later; then the effect was measured and is compared with the predicted interval. Of other
cards only the prediction is known.</p>
<div class="scroll" tabindex="0">
<table><thead><tr><th>job<th>cards<th>withdrawn<th>applied<th>worse<th>rolled back
<th>measured inside<th>share</thead><tbody>{rows}</tbody></table></div>
<h3>Predicted and measured durations</h3>
<p>The predicted duration of each card with its interval and, if the change was made, the measured one.</p>
<div id="cards"></div>
<div class="scroll" tabindex="0">
<table class="texts cards">
<thead><tr><th>job<th>opened at<th>advice<th>what came of it<th>effect</thead><tbody>{cards}</tbody></table></div>
"""


def figure(results: Sequence[Named]) -> dict[str, Any]:
    """Return the chart of the durations: predicted with their intervals, and measured."""
    rows = [
        (f"{name}, {instant(card.opened_at)}", p)
        for name, card in _newest(replays(results))
        for p in card.predictions
        if p.metric == "end_to_end_duration_ms"
    ]
    traces: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "predicted",
            "x": [p.value / 1000 for _, p in rows],
            "y": [html.escape(label) for label, _ in rows],
            "marker": {"color": _PREDICTED, "size": 9},
        },
        {
            # The bundled plotly.js has no error bars.
            "type": "scatter",
            "mode": "lines",
            "name": "its interval",
            "x": [x for _, p in rows for x in (p.low / 1000, p.high / 1000, None)],
            "y": [html.escape(label) for label, _ in rows for _ in range(3)],
            "line": {"color": _PREDICTED, "width": 2},
            "hoverinfo": "skip",
        },
    ]
    for word, color, symbol, is_inside in (
        ("measured, inside", _HELD, "circle", True),
        ("measured, outside", _MISSED, "x", False),
    ):
        own = [(label, p.measured) for label, p in rows if p.measured is not None and p.is_inside is is_inside]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": word,
                "x": [value / 1000 for _, value in own],
                "y": [html.escape(label) for label, _ in own],
                "marker": {"color": color, "symbol": symbol, "size": 10},
            }
        )
    layout = {
        "height": 140 + 28 * max(1, len(rows)),
        "margin": {"l": 20, "r": 20, "t": 40, "b": 50},
        "xaxis": {"title": {"text": "duration of checkpoints (s)"}, "rangemode": "tozero"},
        "yaxis": {"type": "category", "automargin": True},
        "legend": LEGEND,
    }
    return {"id": "cards", "data": traces, "layout": layout}
