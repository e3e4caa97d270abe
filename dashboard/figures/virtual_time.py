"""Draws the timeline of a simulated run. Its times are virtual: they begin at zero, not at a date."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from backend.contracts.simulations import SimulationRunOut
from dashboard.figures.base import Chart
from dashboard.figures.timeline import Around, longest_shown_ms, timeline
from dashboard.palette import Theme
from dashboard.span import EPOCH

_INSTANT: Final = re.compile(r"1970-01-01 (\d\d:\d\d:\d\d) \([^)]*\)")


def virtual_timeline(run: SimulationRunOut, theme: Theme, beside: Sequence[SimulationRunOut] = ()) -> Chart:
    """Draw the checkpoints of a run over virtual time.

    The axes have room for the runs ``beside`` too, so that their timelines can be compared by eye.
    """
    until = _end_of(run)
    chart = timeline(
        list(reversed(run.checkpoints)),
        Around(since=EPOCH, until=max([until, *map(_end_of, beside)])),
        theme=theme,
        where=UTC,
        timeout_ms=run.timeout_ms,
        interval_ms=run.interval_ms,
        now=until,
        revision=run.trace_hash,
        axis_ms=max((longest_shown_ms(r.checkpoints, r.timeout_ms, _end_of(r)) for r in beside), default=0.0),
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


def _end_of(run: SimulationRunOut) -> datetime:
    return EPOCH + timedelta(seconds=run.virtual_time_s)
