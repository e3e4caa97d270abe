"""The results of a backtest as a table of text, as a document, and as a page of HTML with charts.

The page needs no other file and no network: it contains the charts' script.
"""

from __future__ import annotations

import html
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from backend.backtest import report_cards, report_verdicts
from backend.backtest.cards import AdviceScore
from backend.backtest.early_warning import AGE_EDGES, Score, Tally
from backend.backtest.jobs import JobResult
from backend.backtest.parts import LEGEND, NAME_WIDTH, Named, percent, short
from backend.backtest.verdicts import VerdictScore
from backend.contracts.chart_page import chart_page
from backend.domain.backtest import EVERY_PART, Part

_TITLES: Final = {
    Part.WARNING: "WARNINGS OF TIMEOUTS",
    Part.VERDICT: "VERDICTS",
    Part.ADVICE: "ADVICE",
}
_PREDICTED, _PLAIN, _MISSED = "#0072b2", "#8a93a3", "#d55e00"


def whole(results: Sequence[Named]) -> Tally:
    """Return the tally over all jobs."""
    total = Tally()
    for _, result in results:
        total.add(result.tally)
    return total


def table(results: Sequence[Named], parts: Collection[Part] = EVERY_PART) -> Iterator[str]:
    """Yield the lines of the tables of these parts, each by job and in all."""
    tables = {Part.WARNING: _warnings_table, Part.VERDICT: report_verdicts.table, Part.ADVICE: report_cards.table}
    is_first = True
    for part, lines in tables.items():
        if part in parts:
            if not is_first:
                yield ""
            yield _TITLES[part]
            yield from lines(results)
            is_first = False


def _warnings_table(results: Sequence[Named]) -> Iterator[str]:
    """Yield how warnings would have fared, by job and in all, then the coverage by age."""
    yield f"{'':<{NAME_WIDTH}}{'':>20}{'predicted':>26}{'after 80 % of the timeout':>29}"
    heads = "".join(f"{word:>{width}}" for word, width in (("recall", 8), ("lead", 6), ("pages", 7), ("false", 7)))
    yield f"{'job':<{NAME_WIDTH}}{'checkpoints':>11}{'expired':>9}{heads} {heads}"
    for name, result in results:
        yield _row(name, result.tally)
    total = whole(results)
    if len(results) != 1:
        yield _row("all", total)
    yield ""
    yield f"{'age / timeout':<16}{'looks':>9}{'stated':>9}{'held':>9}"
    for words, count, stated, held in _coverage(total):
        yield f"{words:<16}{count:>9}{stated:>9.1%}{held:>9.1%}"
    skipped = sum(result.skipped_count for _, result in results)
    if skipped:
        yield ""
        yield f"{skipped} ended checkpoints were left out: the acknowledgements of their subtasks are not stored"


def _row(name: str, tally: Tally) -> str:
    counts = f"{tally.checkpoint_count:>11}{tally.predicted.expired_count:>9}"
    return f"{short(name):<{NAME_WIDTH}}{counts}{_score(tally.predicted)} {_score(tally.plain)}"


def _score(score: Score) -> str:
    recall, lead = percent(score.recall_ratio), percent(score.lead_ratio)
    return f"{recall:>8}{lead:>6}{score.page_count:>7}{score.false_page_count:>7}"


def _coverage(tally: Tally) -> Iterator[tuple[str, int, float, float]]:
    for (low, high), band in zip(pairwise(AGE_EDGES), tally.bands, strict=True):
        if band.count:
            yield f"{low:g} to {high:g}", band.count, band.stated_count / band.count, band.held_count / band.count


def document(results: Sequence[Named]) -> dict[str, Any]:
    """Return the results as a document of JSON. Ratios are shares; a missing one is null, because nothing expired."""
    return {
        "all": {
            **figures(whole(results)),
            "verdict": VerdictScore.sum_of(v.score for _, v in report_verdicts.replays(results)).document(),
            "advice": AdviceScore.sum_of(a.score for _, a in report_cards.replays(results)).document(),
        },
        "jobs": [
            {
                "job_id": result.job_id,
                "job": name,
                **figures(result.tally),
                "skipped_count": result.skipped_count,
                "warnings": [asdict(w) for w in result.warnings],
                "verdict": report_verdicts.document(result),
                "advice": report_cards.document(result),
            }
            for name, result in results
        ],
    }


def figures(tally: Tally) -> dict[str, Any]:
    """Return a tally as a document of JSON. A missing ratio is null."""
    return {
        "checkpoint_count": tally.checkpoint_count,
        "watched_days": tally.days,
        "predicted": _score_document(tally.predicted),
        "plain_rule": _score_document(tally.plain),
        "coverage_by_age": [
            {"age_ratio": words, "look_count": count, "stated_ratio": stated, "held_ratio": held}
            for words, count, stated, held in _coverage(tally)
        ],
    }


def _score_document(score: Score) -> dict[str, Any]:
    return {
        "expired_count": score.expired_count,
        "caught_count": score.caught_count,
        "recall_ratio": score.recall_ratio,
        "lead_median_ratio": score.lead_ratio,
        "page_count": score.page_count,
        "false_page_count": score.false_page_count,
    }


def page(results: Sequence[Named], parts: Collection[Part] = EVERY_PART, *, title: str, script: str) -> str:
    """Return the page with these parts. ``script`` is the source of plotly.js, which the page contains."""
    drawn: list[dict[str, Any]] = []
    sections: list[str] = []
    if Part.WARNING in parts:
        drawn += [_warnings_figure(results), _coverage_figure(whole(results))]
        sections.append(_warnings_section(results))
    if Part.VERDICT in parts:
        drawn.append(report_verdicts.figure(results))
        sections.append(report_verdicts.section(results))
    if Part.ADVICE in parts:
        drawn.append(report_cards.figure(results))
        sections.append(report_cards.section(results))
    body = f"""<h1>{html.escape(title)}</h1>
<p>{html.escape(_about(results))} Everything is computed from what was known at that time.</p>
{"".join(sections)}"""
    style = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")
    return chart_page(title, body, drawn, style=style, script=script)


def _about(results: Sequence[Named]) -> str:
    """Return the sentence that says of which jobs the page is."""
    names = [name for name, _ in results]
    return f"Replayed: {names[0]}." if len(names) == 1 else f"Replayed: {len(names)} jobs."


def _warnings_section(results: Sequence[Named]) -> str:
    sums = [] if len(results) == 1 else [("all", JobResult("", whole(results)))]
    rows = "".join(_table_row(name, result.tally) for name, result in [*results, *sums])
    return f"""<h2>Warnings of timeouts</h2>
<p>Each checkpoint is predicted at several ages. A page is false if no checkpoint of its episode expired. The lead is
the median share of the timeout that was left at the first warning.</p>
<div class="scroll" tabindex="0">
<table><thead><tr><th>job<th>checkpoints<th>expired<th>recall<th>lead<th>pages<th>false pages
<th>recall, rule by age<th>lead<th>pages<th>false pages</thead><tbody>{rows}</tbody></table></div>
<h3>When each warning would have come</h3><p>As a share of the timeout.</p><div id="warnings"></div>
<h3>Coverage by age</h3><p>How many intervals of the finish held, and how many were to hold.</p>
<div id="coverage"></div>
"""


def _table_row(name: str, tally: Tally) -> str:
    cells = [str(tally.checkpoint_count), str(tally.predicted.expired_count)]
    for score in (tally.predicted, tally.plain):
        cells += [percent(score.recall_ratio), percent(score.lead_ratio), str(score.page_count)]
        cells.append(str(score.false_page_count))
    return f"<tr><td>{html.escape(name)}" + "".join(f"<td>{cell}" for cell in cells)


def _warnings_figure(results: Sequence[Named]) -> dict[str, Any]:
    traces = []
    for word, color, symbol, is_expired in (
        ("it expired", _PREDICTED, "circle", True),
        ("it completed", _MISSED, "x", False),
    ):
        warnings = [(name, w) for name, r in results for w in r.warnings if w.is_expired is is_expired]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": word,
                "x": [w.at for _, w in warnings],
                "y": [w.age_ms / w.timeout_ms for _, w in warnings],
                "text": [f"{html.escape(name)}, checkpoint {w.checkpoint_id}" for name, w in warnings],
                "marker": {"color": color, "symbol": symbol, "size": 8},
                "hovertemplate": "%{text}<br>%{x}<br>after %{y:.0%} of the timeout<extra></extra>",
            }
        )
    y = {"title": {"text": "age at the warning / timeout"}, "tickformat": ".0%", "range": [-0.04, 1.04]}
    layout = {
        "height": 360,
        "margin": {"l": 70, "r": 20, "t": 40, "b": 50},
        "xaxis": {"type": "date"},
        "yaxis": y,
        "legend": LEGEND,
    }
    return {"id": "warnings", "data": traces, "layout": layout}


def _coverage_figure(tally: Tally) -> dict[str, Any]:
    rows = list(_coverage(tally))
    traces = [
        {"type": "bar", "name": name, "x": [r[0] for r in rows], "y": [r[i] for r in rows], "marker": {"color": color}}
        for name, i, color in (("stated", 2, _PLAIN), ("held", 3, _PREDICTED))
    ]
    x = {"title": {"text": "age / timeout"}, "type": "category"}
    y = {"tickformat": ".0%", "range": [0, 1]}
    margin = {"l": 70, "r": 20, "t": 40, "b": 60}
    layout = {"height": 320, "margin": margin, "xaxis": x, "yaxis": y, "legend": LEGEND}
    return {"id": "coverage", "data": traces, "layout": layout}
