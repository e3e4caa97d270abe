"""Draws a backtest: when the verdict would have named what, the effect of the advice, and the warnings of timeouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, tzinfo

from backend.contracts.backtests import EpisodeOut, ReplayedCardOut, ReplayedPredictionOut, WarningOut
from backend.domain.advice import Metric
from dashboard import text
from dashboard.figures.base import Cell, Chart, Figure, Table, Trace, axis, empty, layout, note
from dashboard.figures.whatif import time_axis
from dashboard.palette import ACKED, ALIGNED, CHANDY_LAMPORT, CONTRAST, FAILED, IN_TRANSIT, Theme

SAID_HEIGHT_PX = 300
EFFECTS_HEIGHT_PX = 300
WARNINGS_HEIGHT_PX = 260
ROWS_MAX = 10
"""More rows would not fit into the height of a chart. The table of a chart has all."""
NOT_REPLAYED = "This part was not replayed."
_COLORS = (ALIGNED, CONTRAST, ACKED, IN_TRANSIT, "#CC79A7", CHANDY_LAMPORT)
_SAID_COLUMNS = ("cause", "vertex", "first said (UTC)", "last said (UTC)", "checkpoints", "said", "followed", "held")
_EFFECT_COLUMNS = (
    "opened (UTC)", "advice", "predicted (ms)", "low (ms)", "high (ms)", "measured (ms)", "inside"
)  # fmt: skip
_WARNING_COLUMNS = ("warned (UTC)", "checkpoint", "age (ms)", "timeout (ms)", "expired", "ended after (ms)")


def cause_of(episode: EpisodeOut, words: Mapping[str, str]) -> str:
    """Return the cause of an episode with its vertex. ``words`` has a word for each kind of verdict."""
    word = words.get(episode.kind, episode.kind.value)
    return word if episode.vertex is None else f"{word}: {episode.vertex}"


def said(
    episodes: Sequence[EpisodeOut] | None,
    words: Mapping[str, str],
    *,
    theme: Theme,
    where: tzinfo,
    is_narrow: bool = False,
) -> Chart:
    """Draw when the verdict would have named each cause, one row for each cause with its vertex.

    ``episodes`` is None if no verdict was replayed.
    """
    if episodes is None:
        return empty(theme, NOT_REPLAYED, height_px=SAID_HEIGHT_PX)
    if not episodes:
        return empty(theme, "The verdict would have named no cause.", height_px=SAID_HEIGHT_PX)
    counts: dict[str, int] = {}
    for one in episodes:
        counts[cause_of(one, words)] = counts.get(cause_of(one, words), 0) + one.said_count
    rows = sorted(counts, key=lambda name: (-counts[name], name))[:ROWS_MAX]
    begin, end = min(e.first_at for e in episodes), max(e.last_at for e in episodes)
    margin = max((end - begin) * 0.03, timedelta(seconds=1))
    traces: list[Trace] = []
    for number, name in enumerate(rows):
        own = [e for e in episodes if cause_of(e, words) == name]
        xs: list[str | None] = []
        hover: list[str | None] = []
        for e in own:
            line = f"<b>{text.plain(name)}</b><br>{text.instant(e.first_at, where)} to {text.instant(e.last_at, where)}"
            line += f"<br>said at {e.said_count} of {text.counted(e.checkpoint_count, 'checkpoint')}"
            if e.followed_count:
                line += f"<br>then the slowest place in {e.held_count} of {e.followed_count}"
            xs += [text.axis_instant(e.first_at, where), text.axis_instant(e.last_at, where), None]
            hover += [line, line, None]
        color = _COLORS[number % len(_COLORS)]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": text.plain(name),
                "x": xs,
                "y": [number if x is not None else None for x in xs],
                "text": hover,
                "line": {"color": color, "width": 8},
                "marker": {"color": color, "size": 10, "symbol": "square"},
                "hovertemplate": "%{text}<extra></extra>",
            }
        )
    figure: Figure = {
        "data": traces,
        "layout": layout(
            theme,
            height_px=SAID_HEIGHT_PX,
            revision="backtest-said",
            margin={"l": 20, "r": 20, "t": 12, "b": 40},
            hovermode="closest",
            xaxis=axis(
                theme,
                type="date",
                range=[text.axis_instant(begin - margin, where), text.axis_instant(end + margin, where)],
                nticks=4 if is_narrow else 8,
            ),
            yaxis={"visible": False, "range": [len(rows) - 0.4, -0.8], "fixedrange": True},
            annotations=_labels(theme, rows, is_narrow=is_narrow),
        ),
    }
    table = tuple(
        (
            words.get(e.kind, e.kind.value), e.vertex, text.instant_utc(e.first_at), text.instant_utc(e.last_at),
            e.checkpoint_count, e.said_count, e.followed_count, e.held_count,
        )
        for e in episodes
    )  # fmt: skip
    summary = f"{text.counted(len(episodes), 'episode')} of {text.counted(len(counts), 'cause')}; most: {rows[0]}."
    return Chart(figure, Table(_SAID_COLUMNS, table), summary, SAID_HEIGHT_PX)


def durations_of(cards: Sequence[ReplayedCardOut]) -> list[tuple[ReplayedCardOut, ReplayedPredictionOut]]:
    """Return the cards that predict a duration, with this prediction."""
    return [(c, p) for c in cards for p in c.predictions if p.metric is Metric.DURATION]


def effects(cards: Sequence[ReplayedCardOut] | None, *, theme: Theme, where: tzinfo, is_narrow: bool = False) -> Chart:
    """Draw the predicted duration of each card with its interval and, if the change was made, the measured one.

    ``cards`` is None if no advice was replayed. Of many cards the newest ``ROWS_MAX`` are drawn.
    """
    if cards is None:
        return empty(theme, NOT_REPLAYED, height_px=EFFECTS_HEIGHT_PX)
    durations = durations_of(cards)
    if not durations:
        return empty(theme, "No card with a predicted duration would have been opened.", height_px=EFFECTS_HEIGHT_PX)
    shown = durations[-ROWS_MAX:]
    numbers = list(range(len(shown)))
    predicted: Trace = {
        "type": "scatter",
        "mode": "markers",
        "name": "predicted",
        "x": [p.value for _, p in shown],
        "y": numbers,
        "marker": {"color": ALIGNED, "size": 10},
        "text": [
            f"predicted {text.duration(p.value)}, {text.duration(p.low)} to {text.duration(p.high)}" for _, p in shown
        ],
        "hovertemplate": "%{text}<extra></extra>",
    }
    # The charts' script has no error bars, so the intervals are lines.
    intervals: Trace = {
        "type": "scatter",
        "mode": "lines",
        "name": "predicted interval",
        "hoverinfo": "skip",
        "x": [v for _, p in shown for v in (p.low, p.high, None)],
        "y": [v for i in numbers for v in (i, i, None)],
        "line": {"color": ALIGNED, "width": 3},
        "opacity": 0.5,
    }
    traces = [intervals, predicted]
    points = (
        ("before", "#8A93A3", "line-ns-open", [(i, p.before) for i, (_, p) in enumerate(shown)]),
        ("measured, inside", ACKED, "diamond", [(i, p.measured) for i, (_, p) in enumerate(shown) if p.is_inside]),
        (
            "measured, outside", FAILED, "x",
            [(i, p.measured) for i, (_, p) in enumerate(shown) if p.is_inside is False],
        ),
    )  # fmt: skip
    for name, color, symbol, values in points:
        known = [(i, v) for i, v in values if v is not None]
        if known:
            traces.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": name,
                    "x": [v for _, v in known],
                    "y": [i for i, _ in known],
                    "marker": {"color": color, "size": 11, "symbol": symbol, "line": {"color": color, "width": 2}},
                    "text": [f"{name} {text.duration(v)}" for _, v in known],
                    "hovertemplate": "%{text}<extra></extra>",
                }
            )
    ends = [v for _, p in shown for v in (p.value, p.low, p.high, p.before, p.measured) if v is not None]
    figure: Figure = {
        "data": traces,
        "layout": layout(
            theme,
            height_px=EFFECTS_HEIGHT_PX,
            revision="backtest-effects",
            margin={"l": 20, "r": 20, "t": 34, "b": 44},
            showlegend=True,
            hovermode="closest",
            xaxis=time_axis("end-to-end duration, median", ends, theme),
            yaxis={"visible": False, "range": [len(shown) - 0.4, -0.8], "fixedrange": True},
            annotations=_labels(
                theme,
                [f"{text.instant(c.opened_at, where)}: {c.headline}" for c, _ in shown],
                is_narrow=is_narrow,
            ),
        ),
    }
    rows: list[tuple[Cell, ...]] = [
        (
            text.instant_utc(c.opened_at), c.headline, p.value, p.low, p.high, p.measured,
            None if p.is_inside is None else ("yes" if p.is_inside else "no"),
        )
        for c, p in durations
    ]  # fmt: skip
    measured = [p for _, p in durations if p.is_inside is not None]
    inside = sum(bool(p.is_inside) for p in measured)
    summary = f"{text.counted(len(durations), 'card')}; of {len(measured)} measured durations, {inside} were inside."
    if len(shown) < len(durations):
        summary = f"The newest {len(shown)} of {summary}"
    return Chart(figure, Table(_EFFECT_COLUMNS, tuple(rows)), summary, EFFECTS_HEIGHT_PX)


def warnings(replay: Sequence[WarningOut] | None, *, theme: Theme, where: tzinfo, is_narrow: bool = False) -> Chart:
    """Draw when each warning would have come, as a share of the timeout, and whether the checkpoint expired.

    ``found`` is None if no warning was replayed.
    """
    if replay is None:
        return empty(theme, NOT_REPLAYED, height_px=WARNINGS_HEIGHT_PX)
    if not replay:
        return empty(theme, "No checkpoint would have been warned of.", height_px=WARNINGS_HEIGHT_PX)
    traces: list[Trace] = []
    for name, color, symbol, is_expired in (
        ("it expired", ALIGNED, "circle", True),
        ("it completed", FAILED, "x", False),
    ):
        own = [w for w in replay if w.is_expired is is_expired]
        if own:
            traces.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": name,
                    "x": [text.axis_instant(w.at, where) for w in own],
                    "y": [w.age_ms / w.timeout_ms for w in own],
                    "marker": {"color": color, "symbol": symbol, "size": 8},
                    "text": [_warned(w, where) for w in own],
                    "hovertemplate": "%{text}<extra></extra>",
                }
            )
    begin, end = _ends([w.at for w in replay])
    figure: Figure = {
        "data": traces,
        "layout": layout(
            theme,
            height_px=WARNINGS_HEIGHT_PX,
            revision="backtest-warnings",
            margin={"l": 62, "r": 20, "t": 34, "b": 40},
            showlegend=True,
            hovermode="closest",
            xaxis=axis(
                theme,
                type="date",
                range=[text.axis_instant(begin, where), text.axis_instant(end, where)],
                nticks=4 if is_narrow else 8,
            ),
            yaxis=axis(theme, "age / timeout", tickformat=".0%", range=[-0.03, 1.03]),
        ),
    }
    rows = tuple(
        (
            text.instant_utc(w.at), w.checkpoint_id, w.age_ms, w.timeout_ms, "yes" if w.is_expired else "no",
            w.ended_after_ms,
        )
        for w in replay
    )  # fmt: skip
    expired = sum(w.is_expired for w in replay)
    summary = f"{text.counted(len(replay), 'warning')}; {expired} of these checkpoints expired."
    return Chart(figure, Table(_WARNING_COLUMNS, rows), summary, WARNINGS_HEIGHT_PX)


def _warned(one: WarningOut, where: tzinfo) -> str:
    share = text.percent(one.age_ms / one.timeout_ms)
    end = "expired" if one.is_expired else f"completed after {text.duration(one.ended_after_ms)}"
    return f"checkpoint {one.checkpoint_id}, {text.instant(one.at, where)}<br>after {share} of the timeout<br>it {end}"


def _ends(times: Sequence[datetime]) -> tuple[datetime, datetime]:
    begin, end = min(times), max(times)
    margin = max((end - begin) * 0.03, timedelta(seconds=1))
    return begin - margin, end + margin


def _labels(theme: Theme, names: Sequence[str], *, is_narrow: bool) -> list[dict[str, object]]:
    """Return the label of each row, above its line."""
    most = 42 if is_narrow else 90
    more: dict[str, object] = {
        "xref": "paper", "xanchor": "left", "yanchor": "bottom", "yshift": 7, "borderpad": 0,
        "font": {"size": 11, "color": theme.text},
    }  # fmt: skip
    return [note(theme, text.plain(text.short(name, most)), 0, row, **more) for row, name in enumerate(names)]
