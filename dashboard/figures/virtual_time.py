"""Draws the timeline of a simulated run. Its times are virtual: they begin at zero, not at a date."""

from __future__ import annotations

import re
from datetime import UTC, timedelta
from typing import Any, Final

from backend.contracts.simulations import SimulationRunOut
from dashboard.figures.base import Chart
from dashboard.figures.timeline import Around, timeline
from dashboard.palette import Theme
from dashboard.span import EPOCH

_INSTANT: Final = re.compile(r"1970-01-01 (\d\d:\d\d:\d\d) \([^)]*\)")


def virtual_timeline(run: SimulationRunOut, theme: Theme) -> Chart:
    """Draw the checkpoints of a run over virtual time."""
    until = EPOCH + timedelta(seconds=run.virtual_time_s)
    chart = timeline(
        list(reversed(run.checkpoints)),
        Around(since=EPOCH, until=until),
        theme=theme,
        where=UTC,
        timeout_ms=run.timeout_ms,
        interval_ms=run.interval_ms,
        now=until,
        revision=run.trace_hash,
    )
    figure: dict[str, Any] = dict(chart.figure)
    axis = figure["layout"]["xaxis"]
    if "title" in axis:
        title = axis["title"] | {"text": "triggered at, in minutes and seconds of virtual time"}
        more = {"xaxis": axis | {"title": title, "tickformat": "%M:%S"}, "dragmode": "zoom"}
        figure["layout"] = figure["layout"] | more
    figure["data"] = [
        trace | {"hovertext": [_INSTANT.sub(r"at \1 of virtual time", words) for words in trace["hovertext"]]}
        if isinstance(trace.get("hovertext"), list)
        else trace
        for trace in figure["data"]
    ]
    return Chart(figure, chart.table, chart.summary, chart.height_px, chart.hints)
