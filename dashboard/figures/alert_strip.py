"""Draws the states of one alert over time in one row, with a bar for each time that it was pending or firing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, tzinfo

from backend.contracts.alerts import EpisodeOut
from dashboard import text
from dashboard.figures.base import Chart, Table, Trace, axis, empty, layout
from dashboard.palette import FAILED, IN_TRANSIT, Theme

HEIGHT_PX = 118
_STATES = (("pending", IN_TRANSIT, "/"), ("firing", FAILED, ""))


def strip(episodes: Sequence[EpisodeOut], *, theme: Theme, where: tzinfo, now: datetime) -> Chart:
    """Draw the strip of ``episodes``, which are newest first. The bar of an open episode ends at ``now``."""
    if not episodes:
        return empty(theme, "No episodes yet.", height_px=HEIGHT_PX)
    segments = [s for e in reversed(episodes) for s in _segments(e, now)]
    begin = min(s[1] for s in segments)
    margin = max((now - begin) * 0.03, timedelta(seconds=1))
    figure = {
        "data": [_trace(word, color, pattern, segments, theme, where) for word, color, pattern in _STATES],
        "layout": layout(
            theme,
            height_px=HEIGHT_PX,
            revision="alert-strip",
            barmode="overlay",
            bargap=0.3,
            showlegend=True,
            margin={"l": 20, "r": 16, "t": 28, "b": 34},
            xaxis=axis(
                theme,
                type="date",
                # In a wide font on a phone, more labels would overlap, and slanted ones be cut.
                nticks=5,
                tickangle=0,
                range=[text.axis_instant(begin - margin, where), text.axis_instant(now + margin, where)],
            ),
            yaxis={"visible": False, "range": [-0.5, 0.5], "fixedrange": True},
        ),
    }
    rows = tuple(
        (word, text.instant_utc(a), text.instant_utc(b), round((b - a).total_seconds(), 3)) for word, a, b in segments
    )
    fired = sum(e.fired_at is not None for e in episodes)
    summary = f"{len(episodes)} episodes, {fired} of them fired; now {episodes[0].state}."
    return Chart(figure, Table(("state", "from (UTC)", "to (UTC)", "duration (s)"), rows), summary, HEIGHT_PX)


def _segments(episode: EpisodeOut, now: datetime) -> list[tuple[str, datetime, datetime]]:
    end = episode.ended_at or now
    fired = episode.fired_at
    segments = []
    if fired is None or fired > episode.began_at:
        segments.append(("pending", episode.began_at, fired or end))
    if fired is not None:
        segments.append(("firing", fired, max(end, fired)))
    return segments


def _trace(
    word: str,
    color: str,
    pattern: str,
    segments: Sequence[tuple[str, datetime, datetime]],
    theme: Theme,
    where: tzinfo,
) -> Trace:
    own = [(a, b) for state, a, b in segments if state == word]
    return {
        "type": "bar",
        "orientation": "h",
        "name": word,
        "base": [text.axis_instant(a, where) for a, _ in own],
        "x": [(b - a).total_seconds() * 1000 for a, b in own],
        "y": [0 for _ in own],
        "marker": {
            "color": color,
            "line": {"color": theme.outline, "width": 0.5},
            "pattern": {"shape": pattern, "fgcolor": theme.surface, "fillmode": "overlay", "size": 6},
        },
        "hovertext": [
            f"<b>{word}</b><br>{text.instant(a, where)} to {text.instant(b, where)}"
            f"<br>{text.duration((b - a).total_seconds() * 1000)}"
            for a, b in own
        ],
        "hoverinfo": "text",
    }
