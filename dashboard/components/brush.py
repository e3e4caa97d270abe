"""The chosen range of a job's timeline. The viewer drags across the chart or moves the ends of the slider below it.

The store ``job-range`` holds ``{"since", "until"}`` in epoch milliseconds, both included. A null end means no limit, a
null range the whole timeline. The address holds the range too.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from backend.contracts.api import CheckpointOut
from dashboard import text
from dashboard.components.attributes import attrs
from dashboard.span import Span

_POSITIONS = 200
_WHOLE = "Below: everything in the chart. To choose a range, drag across the chart or move an end."


def panel(since_ms: int | None, until_ms: int | None) -> Component:
    """The slider under the timeline, and the text of the range."""
    chosen = None if since_ms is None and until_ms is None else {"since": since_ms, "until": until_ms}
    return html.Div(
        [
            dcc.Store(id="job-range", data=chosen),
            dcc.Store(id="job-span"),
            dmc.RangeSlider(
                id="job-range-slider",
                min=0,
                max=_POSITIONS,
                step=1,
                minRange=1,
                value=[0, _POSITIONS],
                label=None,
                thumbFromLabel="start of the range; arrow keys move it",
                thumbToLabel="end of the range; arrow keys move it",
                updatemode="mouseup",
                size="sm",
                color="blue",
                thumbSize=16,
            ),
            html.Div(
                [
                    html.Span(_WHOLE, id="job-range-words", role="status"),
                    html.Button("Show all", id="job-range-clear", className="button", hidden=True),
                ],
                className="brush-words hint",
            ),
        ],
        id="job-brush",
        className="brush",
        **attrs({"role": "group", "aria-label": "Range of the timeline"}),
    )


def words(
    shown: Sequence[CheckpointOut], chosen: Sequence[CheckpointOut], span: Span, where: tzinfo, *, is_of_batches: bool
) -> str:
    """The sentence that says which checkpoints are shown below."""
    if span.is_whole:
        return _WHOLE
    noun = "micro-batches" if is_of_batches else "checkpoints"
    if not chosen:
        return f"Below: none of the {len(shown)} {noun} in the chart are in the chosen range."
    first, last = min(c.triggered_at for c in chosen), max(c.triggered_at for c in chosen)
    between = f"{text.instant(first, where)} to {text.instant(last, where)}"
    return f"Below: {len(chosen)} of {len(shown)} {noun}, {between}."
