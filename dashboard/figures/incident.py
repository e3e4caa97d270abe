"""Draws the alerts of an incident over the durations of the job's checkpoints, with the timeout, on one time axis.

All times are on the clock of this service. The times of checkpoints, which the engine's clock gives, are converted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

from backend.contracts.api import CheckpointOut
from backend.contracts.incidents import IncidentAlertOut
from backend.domain.checkpoint import CheckpointStatus
from dashboard import text
from dashboard.figures.base import Chart, Table, Trace, axis, layout, note
from dashboard.palette import ACKED, ALIGNED, FAILED, IN_TRANSIT, Theme

_ROW_PX = 26
# In a narrow window, the name of a rule is above its bars. Beside the bars, it would leave them half of the width.
_NARROW_ROW_PX = 44
_BAR, _NARROW_BAR = 0.65, 0.4
_SIGNAL_PX = 190
_MARGINS_PX = 78
_ROWS_MAX = 6
_NAME_MAX = 40
_STATES = (("pending", IN_TRANSIT, "/"), ("firing", FAILED, ""), ("resolved", ACKED, "."))


@dataclass(frozen=True, slots=True)
class Signal:
    """The checkpoints around an incident. ``offset`` is the engine's clock minus the clock of this service.

    ``timeout_ms`` is the job's setting now. ``is_cut`` is True if there are more checkpoints, older than these.
    """

    checkpoints: Sequence[CheckpointOut] = ()
    timeout_ms: int | None = None
    offset: timedelta = timedelta()
    is_cut: bool = False

    @property
    def drawn_since(self) -> datetime | None:
        """When the oldest of these checkpoints was triggered, on our clock; None if there are no older ones."""
        return min(c.triggered_at for c in self.checkpoints) - self.offset if self.is_cut and self.checkpoints else None


@dataclass(frozen=True, slots=True)
class _Segment:
    rule: str
    state: str
    since: datetime
    until: datetime


def height_px(rule_count: int, *, has_signal: bool, is_narrow: bool = False) -> int:
    """Return the height of the figure, so that its place has this height before the figure is drawn."""
    row_px = _NARROW_ROW_PX if is_narrow else _ROW_PX
    return min(rule_count, _ROWS_MAX) * row_px + _MARGINS_PX + (_SIGNAL_PX if has_signal else 0)


def incident(
    alerts: Sequence[IncidentAlertOut],
    signal: Signal,
    *,
    since: datetime,
    until: datetime,
    theme: Theme,
    where: tzinfo,
    is_narrow: bool = False,
) -> Chart:
    """Draw one row of states for each rule of ``alerts`` and, if there are checkpoints, their durations below."""
    rules = sorted({a.rule for a in alerts})[:_ROWS_MAX]
    segments = _all_segments([a for a in alerts if a.rule in rules], until)
    ended = [c for c in signal.checkpoints if c.end_to_end_duration_ms is not None]
    height = height_px(len(rules), has_signal=bool(ended), is_narrow=is_narrow)
    bar = _NARROW_BAR if is_narrow else _BAR
    plot_px = height - _MARGINS_PX
    split = _SIGNAL_PX / plot_px if ended else 0.0
    traces = [
        {**_states(word, color, shape, segments, rules, theme, where), "width": bar} for word, color, shape in _STATES
    ]
    shapes, annotations = [], []
    if ended:
        traces += _durations(ended, signal, theme, where)
        if signal.timeout_ms is not None:
            shapes.append(
                {
                    "type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": signal.timeout_ms / 1000,
                    "y1": signal.timeout_ms / 1000, "line": {"color": FAILED, "width": 1.5, "dash": "dash"},
                }
            )  # fmt: skip
            words = f"timeout now {text.duration(signal.timeout_ms)}"
            annotations.append(
                # The newest checkpoints, which may end at the timeout, are at the right end.
                note(theme, words, 0, signal.timeout_ms / 1000, xref="paper", xanchor="left", yanchor="bottom")
            )
        if (oldest := signal.drawn_since) is not None:
            words = f"only checkpoints since {text.instant(oldest, where)}"
            annotations.append(
                note(theme, words, 0, split - 0.06, xref="paper", yref="paper", xanchor="left", yanchor="bottom")
            )
    longest_s = max([(c.end_to_end_duration_ms or 0) / 1000 for c in ended] + [(signal.timeout_ms or 0) / 1000, 0.1])
    figure = {
        "data": traces,
        "layout": layout(
            theme,
            height_px=height,
            revision="incident-strip",
            barmode="overlay",
            showlegend=True,
            margin={"l": 20, "r": 16, "t": 34, "b": 44},
            shapes=shapes,
            annotations=[
                *annotations,
                *(
                    note(
                        theme, text.plain(text.short(rule, _NAME_MAX)), 0, row - bar / 2 if is_narrow else row,
                        xref="paper", yref="y2",
                        xanchor="left", yanchor="bottom" if is_narrow else "middle", xshift=4, bgcolor=theme.surface,
                        borderpad=1,
                    )
                    for row, rule in enumerate(rules)
                ),
            ],
            xaxis=axis(
                theme,
                type="date",
                range=[text.axis_instant(since, where), text.axis_instant(until, where)],
                anchor="y" if ended else "y2",
            ),
            yaxis=axis(
                theme,
                "duration (s)",
                domain=[0, max(0.0, split - 0.06)],
                range=[0, longest_s * 1.12],
                visible=bool(ended),
            ),
            yaxis2={
                "domain": [split, 1], "range": [len(rules) - 0.5, -0.5], "visible": False, "fixedrange": True,
            },
        ),
    }  # fmt: skip
    return Chart(figure, _table(segments, ended, signal), _summary(alerts, rules, ended, signal), height)


def _all_segments(alerts: Sequence[IncidentAlertOut], until: datetime) -> list[_Segment]:
    """Return the states of each rule, oldest first. ``alerts`` are sorted newest first."""
    segments: list[_Segment] = []
    followed: dict[str, datetime] = {}
    for alert in alerts:
        # A resolved state ends when the next episode of the rule begins.
        segments = _segments(alert, until, min(until, followed.get(alert.rule, until))) + segments
        followed[alert.rule] = alert.began_at
    return segments


def _segments(alert: IncidentAlertOut, until: datetime, next_at: datetime) -> list[_Segment]:
    end, fired = min(alert.ended_at or until, until), alert.fired_at
    segments = []
    if fired is None or fired > alert.began_at:
        segments.append(_Segment(alert.rule, "pending", alert.began_at, fired or end))
    if fired is not None:
        segments.append(_Segment(alert.rule, "firing", fired, max(end, fired)))
        if alert.ended_at is not None and alert.ended_at < next_at:
            segments.append(_Segment(alert.rule, "resolved", alert.ended_at, next_at))
    return segments


def _states(
    word: str,
    color: str,
    shape: str,
    segments: Sequence[_Segment],
    rules: Sequence[str],
    theme: Theme,
    where: tzinfo,
) -> Trace:
    own = [s for s in segments if s.state == word]
    return {
        "type": "bar",
        "orientation": "h",
        "name": word,
        "yaxis": "y2",
        "base": [text.axis_instant(s.since, where) for s in own],
        "x": [(s.until - s.since).total_seconds() * 1000 for s in own],
        "y": [rules.index(s.rule) for s in own],
        "opacity": 0.35 if word == "resolved" else 1,
        "marker": {
            "color": color,
            "line": {"color": theme.outline, "width": 0.5},
            "pattern": {"shape": shape, "fgcolor": theme.surface, "fillmode": "overlay", "size": 6},
        },
        "hovertext": [
            f"<b>{s.rule} {word}</b><br>{text.instant(s.since, where)} to {text.instant(s.until, where)}"
            f"<br>{text.duration((s.until - s.since).total_seconds() * 1000)}"
            for s in own
        ],
        "hoverinfo": "text",
    }


def _durations(ended: Sequence[CheckpointOut], signal: Signal, theme: Theme, where: tzinfo) -> list[Trace]:
    traces: list[Trace] = []
    for name, is_failed, color, symbol in (("completed", False, ALIGNED, "circle"), ("failed", True, FAILED, "x")):
        own = [c for c in ended if (c.status is CheckpointStatus.FAILED) is is_failed]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": name,
                "x": [text.axis_instant(c.triggered_at - signal.offset, where) for c in own],
                "y": [(c.end_to_end_duration_ms or 0) / 1000 for c in own],
                "marker": {"color": color, "symbol": symbol, "size": 8, "line": {"color": theme.outline, "width": 0.5}},
                "hovertext": [
                    f"<b>checkpoint {c.checkpoint_id}</b> {name}"
                    f"<br>{text.duration(c.end_to_end_duration_ms)}"
                    f"<br>triggered {text.instant(c.triggered_at - signal.offset, where)}"
                    for c in own
                ],
                "hoverinfo": "text",
            }
        )
    return traces


def _table(segments: Sequence[_Segment], ended: Sequence[CheckpointOut], signal: Signal) -> Table:
    rows: list[tuple[str, str, str, str, float]] = [
        (s.rule, s.state, text.instant_utc(s.since), text.instant_utc(s.until), _s(s.until - s.since)) for s in segments
    ]
    for c in reversed(ended):
        begin, took = c.triggered_at - signal.offset, timedelta(milliseconds=c.end_to_end_duration_ms or 0)
        name = f"checkpoint {c.checkpoint_id}"
        rows.append((name, c.status.value, text.instant_utc(begin), text.instant_utc(begin + took), _s(took)))
    return Table(("alert or checkpoint", "state", "from (UTC)", "to (UTC)", "duration (s)"), tuple(rows))


def _s(span: timedelta) -> float:
    return round(span.total_seconds(), 3)


def _summary(
    alerts: Sequence[IncidentAlertOut], rules: Sequence[str], ended: Sequence[CheckpointOut], signal: Signal
) -> str:
    failed = sum(c.status is CheckpointStatus.FAILED for c in ended)
    firing = sum(a.state == "firing" for a in alerts)
    drawn = f"{text.counted(len(alerts), 'alert')} of {text.counted(len(rules), 'rule')}"
    parts = [f"{drawn}, {firing} firing now"]
    if ended:
        parts.append(f"{text.counted(len(ended), 'checkpoint')} around them, {failed} failed")
    if signal.is_cut:
        parts.append("earlier checkpoints are not drawn")
    if ended and signal.timeout_ms is not None:
        parts.append(f"the timeout is {text.duration(signal.timeout_ms)} now")
    return "; ".join(parts) + "."
