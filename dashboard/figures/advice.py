"""V9: draws the candidates of a recommendation, and the values of a change before and after it.

Predictions have an interval, drawn as bars or as a band. What was measured is drawn as single points, one for each
checkpoint, so that a reader sees the distribution and not only its median.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

from backend.contracts.advice import CandidateOut, CardOut, IntervalOut, MeasuredOut
from backend.domain.advice import AdviceState, Metric
from dashboard import text
from dashboard.figures.base import Cell, Chart, Figure, Table, Trace, axis, empty, layout, note, size_ticks, ticks_ms
from dashboard.figures.scaling import spread
from dashboard.palette import ACKED, ALIGNED, CONTRAST, Theme

CANDIDATES_HEIGHT_PX = 340
_ROW_PX = 46
_FRAME_PX = 96
_LOG_MIN_RATIO = 10.0
_COLUMNS = (
    "candidate", "duration (ms)", "duration from (ms)", "duration to (ms)", "persisted (bytes)",
    "persisted from (bytes)", "persisted to (bytes)", "expire (ratio)", "front", "role",
)  # fmt: skip
_OUTCOME_COLUMNS = ("recommendation", "measure", "unit", "when", "checkpoint", "value")
_METRICS = {Metric.DURATION: "end-to-end duration", Metric.PERSISTED: "persisted in-flight data"}


def name_of(candidate: CandidateOut) -> str:
    """Return the mode of a candidate, with its aligned timeout if it has one."""
    mode = candidate.mode.value.replace("-", " ")
    return f"{mode} {text.duration(candidate.aligned_timeout_ms)}" if candidate.aligned_timeout_ms else mode


# --- candidates ---------------------------------------------------------------------------------------------------


def candidates(card: CardOut | None, *, theme: Theme, is_narrow: bool = False) -> Chart:
    """Draw each candidate's predicted duration against its persisted data, and the Pareto front.

    A candidate is on the front if no other is at least as good in both and better in one. If ``is_narrow``, a label has
    only the role, such as 'now' or 'proposed'. The table of the chart has the names of the candidates.
    """
    rows = () if card is None else card.recommendation.candidates
    placed = [(c, c.duration_ms, c.persisted_bytes) for c in rows if c.duration_ms and c.persisted_bytes]
    if card is None or not placed:
        return empty(theme, "No candidate was replayed on the recorded checkpoints.", height_px=CANDIDATES_HEIGHT_PX)
    front = front_of([(d.value, p.value) for _, d, p in placed])
    roles = _roles(card.state)
    most = max(p.high for _, _, p in placed)
    # If nothing is persisted, the axis has a height all the same, but no tick other than 0.
    largest = most or 1.0
    traces = [_front(sorted(front), theme)]
    for shown_role in ("", *roles):
        chosen = [(c, d, p) for c, d, p in placed if _role(c, roles) == shown_role]
        if chosen:
            traces += [
                _intervals(chosen, shown_role, roles, theme),
                _points(chosen, shown_role, front, roles, theme),
            ]
    labels = [
        _label(_placed_words(c, roles, is_narrow=is_narrow), d, p, placed, theme)
        for c, d, p in placed
        if _role(c, roles)
    ]
    figure = {
        "data": traces,
        "layout": layout(
            theme,
            height_px=CANDIDATES_HEIGHT_PX,
            revision=f"candidates{card.id}",
            margin={"l": 72, "r": 20, "t": 34, "b": 46},
            showlegend=True,
            xaxis=_time_axis("predicted end-to-end duration", _ends([d for _, d, _ in placed]), theme),
            yaxis=axis(
                theme, "predicted persisted data", range=[-0.05 * largest, 1.08 * largest], **size_ticks(most)
            ),
            annotations=labels,
            hovermode="closest",
        ),
    }  # fmt: skip
    summary = _candidates_summary(placed, roles, card.recommendation.headline)
    return Chart(figure, _candidate_table(rows, front, roles), summary, CANDIDATES_HEIGHT_PX)


_Placed = tuple[CandidateOut, IntervalOut, IntervalOut]
_Point = tuple[float, float]


def front_of(points: Sequence[_Point]) -> set[_Point]:
    """Return the points that no other point beats. A point beats another if no value is larger and one is smaller."""
    return {p for p in points if not any(q != p and q[0] <= p[0] and q[1] <= p[1] for q in points)}


def _roles(state: AdviceState) -> tuple[str, str]:
    """Return the words for the settings before the change and for the proposed ones."""
    is_made = state.is_in_force
    return ("before", "applied") if is_made else ("now", "proposed")


def _role(candidate: CandidateOut, roles: tuple[str, str]) -> str:
    if candidate.is_current:
        return roles[0]
    return roles[1] if candidate.is_proposed else ""


def _color(role: str, roles: tuple[str, str]) -> str:
    return {roles[0]: CONTRAST, roles[1]: ACKED}.get(role, ALIGNED)


def _intervals(chosen: Sequence[_Placed], role: str, roles: tuple[str, str], theme: Theme) -> Trace:
    """Return one line along each axis for each candidate. The page's build of Plotly has no error bars."""
    x: list[float | None] = []
    y: list[float | None] = []
    for _, d, p in chosen:
        x += [d.low, d.high, None, d.value, d.value, None]
        y += [p.value, p.value, None, p.low, p.high, None]
    color, width = (_color(role, roles), 2) if role else (theme.unknown, 1.5)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"interval of {role or 'other candidates'}",
        "showlegend": False,
        "x": x,
        "y": y,
        "line": {"color": color, "width": width},
        "hoverinfo": "skip",
    }


def _points(chosen: Sequence[_Placed], role: str, front: set[_Point], roles: tuple[str, str], theme: Theme) -> Trace:
    symbol, size = {roles[0]: ("square", 13), roles[1]: ("diamond", 15)}.get(role, ("circle", 9))
    line = {"color": theme.surface, "width": 1.5}
    return {
        "type": "scatter",
        "mode": "markers",
        "name": role or "other candidates",
        "x": [d.value for _, d, _ in chosen],
        "y": [p.value for _, _, p in chosen],
        "marker": {"color": _color(role, roles), "symbol": symbol, "size": size, "line": line},
        "hovertext": [_hover(c, d, p, role, is_best=(d.value, p.value) in front) for c, d, p in chosen],
        "hovertemplate": "%{hovertext}<extra></extra>",
    }


def _hover(c: CandidateOut, d: IntervalOut, p: IntervalOut, role: str, *, is_best: bool) -> str:
    lines = [
        f"<b>{name_of(c)}</b>{f' ({role})' if role else ''}",
        f"duration {text.duration(d.value)} ({text.duration(d.low)} to {text.duration(d.high)})",
        f"persisted {text.size(p.value)} ({text.size(p.low)} to {text.size(p.high)})",
        f"expire {text.percent(c.expired_ratio)}",
        "predicted" + ("; no candidate is better in both" if is_best else ""),
    ]
    return "<br>".join(lines)


def _front(points: Sequence[_Point], theme: Theme) -> Trace:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "best trade-offs (Pareto front)",
        "x": [d for d, _ in points],
        "y": [p for _, p in points],
        "line": {"color": theme.muted, "width": 1.5, "dash": "dot"},
        "hoverinfo": "skip",
    }


def _placed_words(candidate: CandidateOut, roles: tuple[str, str], *, is_narrow: bool) -> str:
    role = f"<b>{_role(candidate, roles)}</b>"
    return role if is_narrow else f"{role}: {name_of(candidate)}"


def _label(words: str, d: IntervalOut, p: IntervalOut, placed: Sequence[_Placed], theme: Theme) -> dict[str, object]:
    """Label a candidate on the side of its point where the plot has room."""
    values = [x.value for _, x, _ in placed]
    is_log = _is_log(_ends([x for _, x, _ in placed]))
    is_left = d.value >= math.sqrt(min(values) * max(values)) if is_log else d.value * 2 >= min(values) + max(values)
    side = {"xanchor": "right", "xshift": -12} if is_left else {"xanchor": "left", "xshift": 12}
    look = {"font": {"size": 12, "color": theme.text}, "bgcolor": theme.surface, "borderpad": 1}
    at = math.log10(d.value) if is_log else d.value
    return note(theme, words, at, p.value, yanchor="bottom", yshift=12, **look, **side)


def _candidates_summary(placed: Sequence[_Placed], roles: tuple[str, str], headline: str) -> str:
    said = [
        f"{_role(c, roles)} {name_of(c)}: {text.duration(d.value)} and {text.size(p.value)}"
        for c, d, p in placed
        if _role(c, roles)
    ]
    what = f"Predicted duration against persisted data of {len(placed)} candidates for {headline!r}"
    return f"{what}. {'; '.join(said)}."


def _candidate_table(rows: Sequence[CandidateOut], front: set[_Point], roles: tuple[str, str]) -> Table:
    found: list[tuple[Cell, ...]] = []
    for c in rows:
        d, p = c.duration_ms, c.persisted_bytes
        is_best = d is not None and p is not None and (d.value, p.value) in front
        found.append((name_of(c), *_cells(d), *_cells(p), c.expired_ratio, "yes" if is_best else "no", _role(c, roles)))
    return Table(_COLUMNS, tuple(found))


def _cells(value: IntervalOut | None) -> tuple[Cell, Cell, Cell]:
    return (None, None, None) if value is None else (value.value, value.low, value.high)


# --- outcome ------------------------------------------------------------------------------------------------------


def has_outcome(card: CardOut) -> bool:
    """Return whether the card has measured values of single checkpoints."""
    return any(m.values and m.metric in _METRICS for m in card.measured)


def outcome_height_px(cards: Sequence[CardOut], *, is_narrow: bool = False) -> int:
    """Return the height of the chart of these cards. If ``is_narrow``, the measures stand one above the other."""
    one_px = _FRAME_PX + 2 * _ROW_PX * max(1, sum(1 for c in cards if has_outcome(c)))
    return len(_METRICS) * one_px if is_narrow else one_px


def outcome(cards: Sequence[CardOut], *, theme: Theme, is_narrow: bool = False) -> Chart:
    """Draw the values of the checkpoints before and after each change, in front of the predicted interval."""
    shown = [c for c in cards if has_outcome(c)]
    height_px = outcome_height_px(cards, is_narrow=is_narrow)
    if not shown:
        return empty(theme, "No change has been measured yet.", height_px=height_px)
    metrics = [m for m in _METRICS if any(r.metric is m and r.values for c in shown for r in c.measured)]
    traces: list[Trace] = []
    shapes: list[dict[str, object]] = []
    axes: dict[str, object] = {}
    notes: list[dict[str, object]] = []
    for column, metric in enumerate(metrics):
        end = "" if column == 0 else str(column + 1)
        drawn = [(i, r, _before_of(c, metric)) for i, c in enumerate(shown) for r in c.measured if r.metric is metric]
        values = [
            v for _, r, before in drawn for v in (*_known(before), *_known(r.values), r.predicted.low, r.predicted.high)
        ]
        across, upward = _domains(column, len(metrics), is_narrow=is_narrow)
        x_axis = _value_axis(metric, values, theme) | {"domain": across, "anchor": f"y{end}"}
        axes[f"xaxis{end}"] = x_axis
        rows = _rows_axis(shown, theme, is_labelled=column == 0 or is_narrow)
        axes[f"yaxis{end}"] = rows | {"domain": upward, "anchor": f"x{end}"}
        for i, row, before in drawn:
            traces += [
                *_strip(before, 2 * i, "before", CONTRAST, row.unit, end),
                *_strip(row.values, 2 * i + 1, "after", ALIGNED, row.unit, end),
            ]
            shapes += _band(row, 2 * i + 1, end)
            notes.append(_predicted_note(row, 2 * i + 1, end, theme, is_log=x_axis.get("type") == "log"))
    figure: Figure = {
        "data": traces,
        "layout": layout(
            theme,
            height_px=height_px,
            revision=f"outcome{shown[0].id}",
            margin={"l": 72, "r": 20, "t": 24, "b": 48},
            hovermode="closest",
            shapes=shapes,
            annotations=notes,
            **axes,
        ),
    }
    return Chart(figure, _outcome_table(shown), _outcome_summary(shown), height_px)


def _known(values: Iterable[float | None]) -> list[float]:
    return [v for v in values if v is not None]


def _before_of(card: CardOut, metric: Metric) -> tuple[float | None, ...]:
    return next((e.before_values for e in card.recommendation.expected if e.metric is metric), ())


def _strip(values: Sequence[float | None], row: int, word: str, color: str, unit: str, end: str) -> list[Trace]:
    """Return the points of one row and their median. The points are spread, so that equal values stay visible."""
    known = _known(values)
    place: Trace = {"type": "scatter", "name": word, "xaxis": f"x{end}", "yaxis": f"y{end}"}
    points: Trace = {
        "mode": "markers",
        "x": known,
        "y": spread(row, len(known)),
        "marker": {"color": color, "size": 7, "opacity": 0.75},
        "text": [f"{word}: {text.evidence_value(v, unit)}" for v in known],
        "hovertemplate": "%{text}<extra></extra>",
    }
    if not known:
        return [place | points]
    middle = statistics.median(known)
    mark: Trace = {
        "mode": "lines",
        "name": f"median {word}",
        "x": [middle, middle],
        "y": [row - 0.4, row + 0.4],
        "line": {"color": color, "width": 3},
        "text": [f"median {word}: {text.evidence_value(middle, unit)}"] * 2,
        "hovertemplate": "%{text}<extra></extra>",
    }
    return [place | points, place | mark]


def _band(row: MeasuredOut, at: int, end: str) -> list[dict[str, object]]:
    place = {"xref": f"x{end}", "yref": f"y{end}", "layer": "below"}
    interval = {"type": "rect", "x0": row.predicted.low, "x1": row.predicted.high, "y0": at - 0.46, "y1": at + 0.46}
    value = {"type": "line", "x0": row.predicted.value, "x1": row.predicted.value, "y0": at - 0.46, "y1": at + 0.46}
    return [
        place | interval | {"fillcolor": ACKED, "opacity": 0.22, "line": {"width": 0}},
        place | value | {"line": {"color": ACKED, "width": 2, "dash": "dot"}},
    ]


def _predicted_note(row: MeasuredOut, at: int, end: str, theme: Theme, *, is_log: bool) -> dict[str, object]:
    x = math.log10(row.predicted.value) if is_log else row.predicted.value
    return note(theme, "predicted", x, at - 0.46, xref=f"x{end}", yref=f"y{end}", yanchor="bottom")


def _domains(column: int, count: int, *, is_narrow: bool) -> tuple[list[float], list[float]]:
    """Return the parts of the width and of the height that one measure takes: a column or, if narrow, a row."""
    gap = 0.3 if is_narrow else 0.06
    size = (1.0 - gap * (count - 1)) / count
    part = [column * (size + gap), column * (size + gap) + size]
    return ([0.0, 1.0], [1.0 - part[1], 1.0 - part[0]]) if is_narrow else (part, [0.0, 1.0])


def topic_of(card: CardOut) -> str:
    """Return the topic of a card in words. It identifies the card among those with measured values."""
    return card.recommendation.topic.value.replace("-", " ")


def _rows_axis(shown: Sequence[CardOut], theme: Theme, *, is_labelled: bool) -> dict[str, object]:
    """Label the two rows of each card with its topic."""
    count = len(shown)
    rows = list(range(2 * count))
    labels = [f"{topic_of(c)}<br>{when}" for c in shown for when in ("before", "after")]
    return axis(
        theme, range=[2 * count - 0.4, -0.6], tickvals=rows, ticktext=labels, showticklabels=is_labelled, showgrid=False
    )


def _value_axis(metric: Metric, values: Sequence[float], theme: Theme) -> dict[str, object]:
    if metric is Metric.DURATION:
        return _time_axis(_METRICS[metric], values, theme)
    most = max(values, default=0.0)
    shown = most or 1.0
    return axis(theme, _METRICS[metric], range=[-0.04 * shown, 1.04 * shown], **size_ticks(most))


def _outcome_summary(shown: Sequence[CardOut]) -> str:
    said = [
        f"{c.recommendation.headline}: {_METRICS[m.metric]} measured {text.evidence_value(m.measured, m.unit)}, "
        f"{'inside' if m.is_inside else 'outside'} the predicted {text.evidence_value(m.predicted.low, m.unit)} to "
        f"{text.evidence_value(m.predicted.high, m.unit)}"
        for c in shown
        for m in c.measured
        if m.metric in _METRICS
    ]
    return f"Values of single checkpoints before and after. {'; '.join(said)}."


def _outcome_table(shown: Sequence[CardOut]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for card in shown:
        advice = card.recommendation
        for m in card.measured:
            if m.metric not in _METRICS:
                continue
            head = (advice.headline, _METRICS[m.metric], m.unit)
            before = zip(advice.checkpoint_ids, _before_of(card, m.metric), strict=False)
            rows += [(*head, "before", number, value) for number, value in before]
            rows += [(*head, "after", n, v) for n, v in zip(card.measured_ids, m.values, strict=False)]
    return Table(_OUTCOME_COLUMNS, tuple(rows))


# --- axes ---------------------------------------------------------------------------------------------------------


def _ends(intervals: Sequence[IntervalOut]) -> list[float]:
    return [v for i in intervals for v in (i.low, i.high)]


def _is_log(values: Sequence[float]) -> bool:
    """Return whether the values span so much that a linear axis would squeeze the small ones together."""
    return min(values) > 0 and max(values) >= _LOG_MIN_RATIO * min(values)


def _time_axis(title: str, values_ms: Sequence[float], theme: Theme) -> dict[str, object]:
    least, most = min(values_ms), max(values_ms)
    if not _is_log(values_ms):
        values, labels = ticks_ms(most or 1.0)
        return axis(theme, title, range=[-0.03 * most, 1.06 * most or 1.0], tickvals=values, ticktext=labels)
    powers = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    steps = [s * 10.0**p for p in powers for s in (1, 2, 5) if least / 2 <= s * 10.0**p <= most * 2]
    ends = [math.log10(least / 1.3), math.log10(most * 1.3)]
    return axis(
        theme, f"{title} (log)", type="log", range=ends, tickvals=steps, ticktext=[text.duration(v) for v in steps]
    )
