"""The replayed verdicts as lines of a table, as a document, and as a part of the page with a chart."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from backend.backtest.jobs import JobResult
from backend.backtest.parts import (
    EPISODES_SHOWN,
    JOBS_DRAWN,
    NAME_WIDTH,
    Named,
    cells,
    instant,
    percent,
    scores_of,
    short,
)
from backend.backtest.verdicts import FOLLOWED_COUNT, Episode, VerdictReplay, VerdictScore

_COLORS = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a93a3", "#6a3d9a"),
    *("#b15928", "#33a02c", "#e31a1c", "#1f78b4"),
)


def replays(results: Sequence[Named]) -> list[tuple[str, VerdictReplay]]:
    """Return the replays of the verdict, by the names of the jobs."""
    return [(name, result.verdict) for name, result in results if result.verdict is not None]


def table(results: Sequence[Named]) -> Iterator[str]:
    """Yield the lines of the table: each job and all of them, then the newest episodes."""
    jobs = replays(results)
    yield f"{'job':<{NAME_WIDTH}}{'verdicts':>9}{'episodes':>9}{'stable':>8}{'held':>7}{'as stored':>11}  causes"
    for name, score in scores_of(jobs, VerdictScore):
        yield _row(name, score)
    episodes = _newest(jobs)
    if episodes:
        yield ""
        yield f"{'job':<{NAME_WIDTH}}{'first said at':<21}{'checkpoints':>11}{'said':>6}{'held':>8}  what it said first"
    for name, e in episodes:
        held = f"{e.held_count}/{e.followed_count}" if e.followed_count else "–"
        first = f"{short(name):<{NAME_WIDTH}}{instant(e.first_at):<21}"
        yield f"{first}{e.checkpoint_count:>11}{e.said_count:>6}{held:>8}  {e.sentence}"


def _row(name: str, score: VerdictScore) -> str:
    kinds = ", ".join(f"{kind} {count}" for kind, count in score.kinds.items())
    counts = f"{score.checkpoint_count:>9}{score.episode_count:>9}{percent(score.stable_ratio):>8}"
    rest = f"{percent(score.held_ratio):>7}{percent(score.agreed_ratio):>11}"
    return f"{short(name):<{NAME_WIDTH}}{counts}{rest}  {kinds}"


def _newest(found: Sequence[tuple[str, VerdictReplay]]) -> list[tuple[str, Episode]]:
    """Return the newest episodes of all jobs, oldest first."""
    episodes = [(name, e) for name, replay in found for e in replay.episodes]
    return sorted(episodes, key=lambda row: (row[1].first_at, row[0]))[-EPISODES_SHOWN:]


def document(result: JobResult) -> dict[str, Any] | None:
    """Return the verdicts of one job as a document of JSON."""
    if result.verdict is None:
        return None
    episodes = [asdict(e) for e in result.verdict.episodes]
    return {**result.verdict.score.document(), "episodes": episodes}


def section(results: Sequence[Named]) -> str:
    """Return the part of the page."""
    jobs = replays(results)
    rows = "".join(
        cells(
            name,
            s.checkpoint_count,
            s.episode_count,
            percent(s.stable_ratio),
            percent(s.held_ratio),
            percent(s.agreed_ratio),
        )
        for name, s in scores_of(jobs, VerdictScore)
    )
    episodes = "".join(
        cells(
            name,
            instant(e.first_at),
            e.first_checkpoint_id,
            e.unnamed_count,
            f"{e.said_count}/{e.checkpoint_count}",
            f"{e.held_count}/{e.followed_count}" if e.followed_count else "–",
            f"{e.stored_same_count}/{e.stored_count}" if e.stored_count else "–",
            e.sentence,
        )
        for name, e in reversed(_newest(jobs))
    )
    return f"""<h2>Verdicts</h2>
<p>The verdict at the end of each checkpoint, from what was known then. An episode is a cause that was named again and
again. <em>Stable</em>: the share of the checkpoints of the episodes at which the cause was named. <em>Held</em>: of the
{FOLLOWED_COUNT} checkpoints after the first statement, the share in which the named place was the slowest on the
critical path (reconstructed). <em>As stored</em>: the share of the stored verdicts that name the same cause.</p>
<div class="scroll" tabindex="0">
<table><thead><tr><th>job<th>verdicts<th>episodes<th>stable<th>held<th>as stored</thead>
<tbody>{rows}</tbody></table></div>
<h3>What was said, and when</h3><div id="episodes"></div>
<div class="scroll" tabindex="0">
<table class="texts"><thead><tr><th>job<th>first said at<th>checkpoint<th>suffering before<th>said
<th>held<th>as stored<th>what it said first</thead><tbody>{episodes}</tbody></table></div>
"""


def figure(results: Sequence[Named]) -> dict[str, Any]:
    """Return the chart of the episodes: a line for each job with the most of them, a color for each cause."""
    jobs = sorted(replays(results), key=lambda row: (-row[1].score.episode_count, row[0]))
    drawn = [(name, replay) for name, replay in jobs if replay.episodes][:JOBS_DRAWN]
    kinds = sorted({e.kind for _, replay in drawn for e in replay.episodes})
    traces = []
    for number, kind in enumerate(kinds):
        rows = [(name, e) for name, replay in drawn for e in replay.episodes if e.kind == kind]
        xs: list[str | None] = []
        ys: list[str | None] = []
        texts: list[str | None] = []
        for name, e in rows:
            xs += [e.first_at, e.last_at, None]
            ys += [html.escape(name), html.escape(name), None]
            where = "" if e.vertex is None else f" at {e.vertex}"
            held = f", held in {e.held_count} of {e.followed_count}" if e.followed_count else ""
            texts += [html.escape(f"{e.kind}{where}: {e.said_count} of {e.checkpoint_count}{held}")] * 2 + [None]
        color = _COLORS[number % len(_COLORS)]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": kind,
                "x": xs,
                "y": ys,
                "text": texts,
                "line": {"width": 9, "color": color},
                "marker": {"size": 9, "color": color, "symbol": "square"},
                "hovertemplate": "%{y}<br>%{x}<br>%{text}<extra></extra>",
            }
        )
    height = 120 + 28 * max(1, len(drawn))
    layout = {
        "height": height,
        "margin": {"l": 160, "r": 20, "t": 10, "b": 50},
        "xaxis": {"type": "date"},
        "yaxis": {"type": "category", "automargin": True},
        "legend": {"orientation": "h"},
    }
    return {"id": "episodes", "data": traces, "layout": layout}
