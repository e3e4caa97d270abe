"""Draws two checkpoints on one axis: each vertex with both its rows, and the differences of its phases beside them.

The upper row of a pair is checkpoint A, the lower one B. The rows of a vertex show its slowest subtask on each side. An
opened vertex also has a pair of rows for each of the subtasks that differ most. A bar to the right of the zero line
means that A took longer, a bar to the left that B did. A phase that one side did not report has no bar.

Micro-batches have no vertices. They are drawn as one pair, whose segments are the parts of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from backend.contracts.api import SubtaskPhasesOut
from backend.contracts.comparing import CheckpointComparisonOut, MeasureDifferenceOut
from backend.domain.checkpoint import SubtaskMeasure
from backend.domain.verdict import Phase
from dashboard import text
from dashboard.figures.base import MEASURED_NAMES, Cell, Chart, Table, Trace, axis, empty, layout, note, ticks_ms
from dashboard.figures.gantt import segments
from dashboard.figures.micro_batch import COLORS, WORDS
from dashboard.palette import PHASE_COLORS, PHASE_WORDS, Theme

_ROW_PX = 19
_PAIR_ROWS = 2.5
_LABELS_PX = 262
_NARROW_ROW_PX = 36
_NARROW_MARGIN_PX = 8
_PAIRS_MAX = 200
_LONG = 14
# Text on a difference bar needs this share of the axis.
_TEXT_MIN_SHARE = 0.2
_INK = "#1b2330"

PHASES: dict[SubtaskMeasure, Phase] = {
    SubtaskMeasure.START_DELAY: Phase.START_DELAY,
    SubtaskMeasure.ALIGNMENT: Phase.ALIGNMENT,
    SubtaskMeasure.SYNC: Phase.SYNC,
    SubtaskMeasure.ASYNC: Phase.ASYNC,
}


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of a row: the name and colour of the phase, and its time since the trigger."""

    word: str
    color: str
    start_ms: float
    end_ms: float
    is_pending: bool = False


@dataclass(frozen=True, slots=True)
class _Pair:
    label: str
    key: tuple[str | None, int | None]
    """The vertex, and the subtask if the pair is one of an opened vertex."""
    labels: tuple[str, str]
    rows: tuple[list[_Piece], list[_Piece]]
    hovers: tuple[str, str]
    differences: list[tuple[str, str, int]] = field(default_factory=list)
    """For each phase: its word, its colour, and the difference in milliseconds."""


def comparison(
    checkpoint_comparison: CheckpointComparisonOut,
    *,
    theme: Theme,
    is_by_difference: bool = False,
    is_narrow: bool = False,
) -> Chart:
    """Draw both checkpoints. The ``customdata`` of a row is ``[vertex id, subtask or null]``.

    If ``is_by_difference``, the vertex whose phases differ most comes first.
    """
    if checkpoint_comparison.b is None:
        return empty(theme, "There is no second checkpoint yet. Choose one above.", height_px=120)
    pairs = _pairs(checkpoint_comparison, is_by_difference=is_by_difference)
    if not pairs:
        return empty(
            theme,
            "The values of the subtasks are not stored for these checkpoints.<br>The facts above show the largest "
            "value of each phase.",
            height_px=140,
        )
    end_ms = max([1.0, *(p.end_ms for pair in pairs for row in pair.rows for p in row)])
    spans_ms = _spans(pairs)
    height_px = _height(pairs, is_narrow=is_narrow)
    figure = {
        "data": [
            *_bars(pairs, theme, is_narrow=is_narrow),
            _pointer(pairs, end_ms),
            *_differences(pairs, spans_ms[1] - spans_ms[0], theme, is_narrow=is_narrow),
        ],
        "layout": _layout(checkpoint_comparison, pairs, theme, (end_ms, *spans_ms), height_px, is_narrow=is_narrow),
    }
    return Chart(figure, table(checkpoint_comparison), summary(checkpoint_comparison), height_px)


def names(checkpoint_comparison: CheckpointComparisonOut) -> tuple[str, str]:
    """Return how the page calls the two checkpoints. Those of two jobs may have one number, so they have letters."""
    numbers = [
        f"#{c.checkpoint.checkpoint_id}" for c in (checkpoint_comparison.a, checkpoint_comparison.b) if c is not None
    ]
    if checkpoint_comparison.b is not None and checkpoint_comparison.b.job.id != checkpoint_comparison.job_id:
        return f"A {numbers[0]}", f"B {numbers[1]}"
    return numbers[0], numbers[-1]


# --- rows ---------------------------------------------------------------------------------------------------------


def _pairs(checkpoint_comparison: CheckpointComparisonOut, *, is_by_difference: bool) -> list[_Pair]:
    if checkpoint_comparison.batch_parts:
        return [_batch_pair(checkpoint_comparison)]
    vertices = list(checkpoint_comparison.vertices)
    if is_by_difference:
        vertices.sort(
            key=lambda v: -max((abs(m.difference or 0) for m in v.measures if m.measure in PHASES), default=0)
        )
    pairs: list[_Pair] = []
    opened = checkpoint_comparison.opened
    for v in vertices:
        is_open = opened is not None and opened.vertex_id == v.vertex_id
        title = f"{'▾' if is_open else '▸'} <b>{text.plain(text.short(v.vertex, 20))}</b>"
        pairs.append(
            _pair(checkpoint_comparison, title, (v.vertex_id, None), v.vertex, (v.a_slowest, v.b_slowest), v.measures)
        )
        if is_open and opened is not None:
            pairs += [
                _pair(
                    checkpoint_comparison,
                    f"subtask {s.subtask}",
                    (v.vertex_id, s.subtask),
                    v.vertex,
                    (s.a, s.b),
                    s.measures,
                )
                for s in opened.subtasks
            ]
    return pairs[:_PAIRS_MAX]


def _pair(
    checkpoint_comparison: CheckpointComparisonOut,
    title: str,
    key: tuple[str, int | None],
    vertex: str,
    subtasks: tuple[SubtaskPhasesOut | None, SubtaskPhasesOut | None],
    measures: Sequence[MeasureDifferenceOut],
) -> _Pair:
    ends = [
        None if c is None else c.checkpoint.end_to_end_duration_ms
        for c in (checkpoint_comparison.a, checkpoint_comparison.b)
    ]
    a, b = (_row(s, end) for s, end in zip(subtasks, ends, strict=True))
    whose = names(checkpoint_comparison)
    hovers = tuple(_hover(vertex, s, who, row) for s, who, row in zip(subtasks, whose, (a, b), strict=True))
    labels = [
        who if s is None or key[1] is not None else f"{who} subtask {s.subtask}"
        for s, who in zip(subtasks, whose, strict=True)
    ]
    return _Pair(
        label=title,
        key=key,
        labels=(labels[0], labels[1]),
        rows=(a, b),
        hovers=(hovers[0], hovers[1]),
        differences=[
            (PHASE_WORDS[PHASES[m.measure]], PHASE_COLORS[PHASES[m.measure]], m.difference)
            for m in measures
            if m.measure in PHASES and m.difference
        ],
    )


def _row(subtask: SubtaskPhasesOut | None, end_ms: int | None) -> list[_Piece]:
    if subtask is None:
        return []
    pieces = [_Piece(PHASE_WORDS[s.phase], PHASE_COLORS[s.phase], s.start_ms, s.end_ms) for s in segments(subtask)]
    if not subtask.is_acknowledged and end_ms is not None:
        start = float(subtask.first_barrier_ms or 0)
        pieces.append(_Piece("not acknowledged", "", start, max(float(end_ms), 1.05 * start), is_pending=True))
    return pieces


def _hover(vertex: str, subtask: SubtaskPhasesOut | None, who: str, row: Sequence[_Piece]) -> str:
    if subtask is None:
        return f"<b>{who} {text.plain(vertex)}</b><br>not reported"
    host = f" on {text.plain(subtask.host)}" if subtask.host else ""
    lines = [f"<b>{who} {text.plain(vertex)}</b>", f"subtask {subtask.subtask}{host}"]
    lines += ["not acknowledged" if p.is_pending else f"{p.word} {text.duration(p.end_ms - p.start_ms)}" for p in row]
    if subtask.has_finished:
        lines.append("had finished before the checkpoint")
    elif subtask.is_acknowledged:
        lines.append(f"acknowledged at {text.duration(subtask.ack_ms)}")
    return "<br>".join(lines)


def _batch_pair(checkpoint_comparison: CheckpointComparisonOut) -> _Pair:
    whose = names(checkpoint_comparison)
    rows: tuple[list[_Piece], list[_Piece]] = ([], [])
    differences: list[tuple[str, str, int]] = []
    ends = [0, 0]
    for part in checkpoint_comparison.batch_parts:
        word, color = ("other", "#8A93A3") if part.phase is None else (WORDS[part.phase], COLORS[part.phase])
        for side, took in enumerate((part.a_ms, part.b_ms)):
            if took:
                rows[side].append(_Piece(word, color, ends[side], ends[side] + took))
                ends[side] += took
        if part.difference_ms:
            differences.append((word, color, part.difference_ms))
    hovers = [
        "<br>".join([f"<b>batch {who}</b>", *(f"{p.word} {text.duration(p.end_ms - p.start_ms)}" for p in row)])
        for who, row in zip(whose, rows, strict=True)
    ]
    return _Pair("<b>batch</b>", (None, None), whose, rows, (hovers[0], hovers[1]), differences)


# --- traces -------------------------------------------------------------------------------------------------------


def _y(pair: int, side: int) -> float:
    return pair * _PAIR_ROWS + side


def _bars(pairs: Sequence[_Pair], theme: Theme, *, is_narrow: bool) -> list[Trace]:
    placed = [(_y(i, side), piece) for i, pair in enumerate(pairs) for side in (0, 1) for piece in pair.rows[side]]
    width = 0.4 if is_narrow else 0.82
    traces: list[Trace] = []
    for word in dict.fromkeys(p.word for _, p in placed):
        own = [(y, p) for y, p in placed if p.word == word]
        first = own[0][1]
        marker: dict[str, object] = {"color": first.color, "line": {"color": theme.outline, "width": 0.5}}
        if first.is_pending:
            marker = {
                "color": "rgba(0,0,0,0)",
                "line": {"color": theme.unknown, "width": 1},
                "pattern": {"shape": "/", "size": 6, "solidity": 0.25, "fgcolor": theme.unknown},
            }
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": word,
                "y": [y for y, _ in own],
                "base": [p.start_ms for _, p in own],
                "x": [p.end_ms - p.start_ms for _, p in own],
                "width": width,
                "hoverinfo": "skip",
                "marker": marker,
            }
        )
    return traces


def _pointer(pairs: Sequence[_Pair], end_ms: float) -> Trace:
    """Draw an invisible bar over each row that carries the row's hover text and takes clicks."""
    rows = [(i, side, pair) for i, pair in enumerate(pairs) for side in (0, 1)]
    return {
        "type": "bar",
        "orientation": "h",
        "name": "row",
        "y": [_y(i, side) for i, side, _ in rows],
        "base": 0,
        "x": [end_ms * 1.02] * len(rows),
        "width": 1,
        "customdata": [list(pair.key) for _, _, pair in rows],
        "hovertext": [pair.hovers[side] for _, side, pair in rows],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "marker": {"color": "rgba(0,0,0,0)"},
    }


def _stack(pair: _Pair) -> list[tuple[str, str, int, int]]:
    """Return word, colour, base and length of each difference: longer phases to the right, shorter ones to the left."""
    ends = {1: 0, -1: 0}
    stack = []
    for word, color, ms in pair.differences:
        sign = 1 if ms > 0 else -1
        stack.append((word, color, ends[sign], ms))
        ends[sign] += ms
    return stack


def _edges(pair: _Pair) -> list[int]:
    return [base + ms for _, _, base, ms in _stack(pair)]


def _spans(pairs: Sequence[_Pair]) -> tuple[float, float]:
    """Return the ends of the axis of the differences. Both sides of zero are visible."""
    edges = [edge for pair in pairs for edge in _edges(pair)]
    low, high = min([0, *edges]), max([0, *edges])
    room = 0.06 * max(high - low, 1)
    return min(low - room, -2 * room), max(high + room, 2 * room)


def _differences(pairs: Sequence[_Pair], span_ms: float, theme: Theme, *, is_narrow: bool) -> list[Trace]:
    differences = [(i, one) for i, pair in enumerate(pairs) for one in _stack(pair)]
    traces: list[Trace] = []
    for word in dict.fromkeys(one[0] for _, one in differences):
        own = [(i, one) for i, one in differences if one[0] == word]
        wide = _TEXT_MIN_SHARE * span_ms
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": f"difference of {word}",
                "xaxis": "x2",
                "yaxis": "y2" if is_narrow else "y",
                "y": [i if is_narrow else _y(i, 0) + 0.5 for i, _ in own],
                "base": [base for _, (_, _, base, _) in own],
                "x": [ms for *_, (_, _, _, ms) in own],
                "width": 0.42 if is_narrow else 1.1,
                "text": [_signed(ms) if abs(ms) >= wide else "" for *_, (_, _, _, ms) in own],
                "textposition": "inside",
                "insidetextanchor": "middle",
                "textangle": 0,
                "textfont": {"size": 11, "color": _INK},
                "hovertext": [f"{pairs[i].label}<br>{word} {_signed(ms)}" for i, (_, _, _, ms) in own],
                "hovertemplate": "%{hovertext}<extra></extra>",
                "marker": {"color": own[0][1][1], "line": {"color": theme.outline, "width": 0.5}},
            }
        )
    return traces or [_nothing(is_narrow=is_narrow)]


def _nothing(*, is_narrow: bool) -> Trace:
    # Without a trace, Plotly would not draw the axes of the differences.
    return {
        "type": "bar", "orientation": "h", "name": "no difference", "xaxis": "x2", "hoverinfo": "skip",
        "yaxis": "y2" if is_narrow else "y", "x": [0], "y": [0],
    }  # fmt: skip


def _signed(ms: float) -> str:
    return text.signed(ms, text.duration)


# --- layout -------------------------------------------------------------------------------------------------------


def _is_long(pairs: Sequence[_Pair]) -> bool:
    return len(pairs) > _LONG


_NARROW_GAP_PX = 74


def _height(pairs: Sequence[_Pair], *, is_narrow: bool) -> int:
    if is_narrow:
        return round(64 + _NARROW_GAP_PX + _NARROW_ROW_PX * len(pairs) * (_PAIR_ROWS + 1))
    return round((112 if _is_long(pairs) else 76) + _ROW_PX * _PAIR_ROWS * len(pairs))


def _layout(
    checkpoint_comparison: CheckpointComparisonOut,
    pairs: Sequence[_Pair],
    theme: Theme,
    ends_ms: tuple[float, float, float],
    height_px: int,
    *,
    is_narrow: bool,
) -> dict[str, object]:
    (end_ms, low_ms, high_ms), whose, count = ends_ms, names(checkpoint_comparison), len(pairs)
    is_top = _is_long(pairs) and not is_narrow
    values, labels = ticks_ms(end_ms)
    rows_y = [_y(i, side) for i in range(count) for side in (0, 1)]
    rows_text = [_label(pair, side) for pair in pairs for side in (0, 1)]
    side = "top" if is_top else "bottom"
    times = axis(theme, "since trigger", tickvals=values, ticktext=labels, range=[0, end_ms * 1.02], side=side)
    signed_values, signed_labels = _signed_ticks(low_ms, high_ms)
    title = f"difference: {whose[0]} minus {whose[1]}"
    differences = axis(
        theme, title, tickvals=signed_values, ticktext=signed_labels, range=[low_ms, high_ms],
        side=side, zeroline=True, zerolinecolor=theme.text, zerolinewidth=1.5,
    )  # fmt: skip
    rows = axis(
        theme,
        tickvals=rows_y,
        ticktext=rows_text,
        range=[_y(count - 1, 1) + 0.75, -0.8 if is_narrow else -0.75],
        tickfont={"size": 11, "color": theme.text},
        showgrid=False,
        fixedrange=True,
        automargin=False,
    )
    more: dict[str, object] = {}
    notes: list[dict[str, object]] = []
    if is_narrow:
        inner = height_px - 64
        share = _NARROW_ROW_PX * count / inner
        rows |= {"showticklabels": False, "domain": [share + _NARROW_GAP_PX / inner, 1]}
        times |= {"anchor": "y"}
        differences |= {"anchor": "y2", "domain": [0, 1]}
        second = axis(theme, range=[count - 0.4, -0.75], showgrid=False, fixedrange=True, showticklabels=False)
        more["yaxis2"] = second | {"domain": [0, share], "anchor": "x2", "automargin": False}
        above = 0.4 * _NARROW_ROW_PX / 2
        for y, words in zip(rows_y, rows_text, strict=True):
            notes += _above(theme, words, y, "y", above)
        for i, pair in enumerate(pairs):
            notes += _above(theme, pair.label, i, "y2", 0.42 * _NARROW_ROW_PX / 2)
    else:
        times |= {"domain": [0, 0.6]}
        differences |= {"domain": [0.64, 1], "anchor": "y"}
    return layout(
        theme,
        height_px=height_px,
        meta=MEASURED_NAMES,
        revision=f"comparison{whose}{count}{is_narrow}",
        barmode="overlay",
        margin={
            "l": _NARROW_MARGIN_PX if is_narrow else _LABELS_PX, "r": 20 if not is_narrow else 8,
            "t": 62 if is_top else 20, "b": 44,
        },
        xaxis=times,
        yaxis=rows,
        xaxis2=differences,
        shapes=[] if is_narrow else _bands(count, theme),
        annotations=notes,
        hovermode="closest",
        **more,
    )  # fmt: skip


def _above(theme: Theme, words: str, y: float, axis_name: str, shift_px: float) -> list[dict[str, object]]:
    return [
        note(
            theme, words, 0, y, xref="paper", yref=axis_name, xanchor="left", yanchor="bottom", yshift=round(shift_px),
            font={"size": 11, "color": theme.text}, borderpad=0,
        )
    ]  # fmt: skip


def _label(pair: _Pair, side: int) -> str:
    return f"{pair.label}  {pair.labels[0]}" if side == 0 else pair.labels[1]


def _bands(count: int, theme: Theme) -> list[dict[str, object]]:
    return [
        {
            "type": "rect", "xref": "paper", "x0": 0, "x1": 1, "y0": _y(i, 0) - 0.65, "y1": _y(i, 1) + 0.65,
            "fillcolor": theme.grid, "opacity": 0.4, "line": {"width": 0}, "layer": "below",
        }
        for i in range(0, count, 2)
    ]  # fmt: skip


def _signed_ticks(low_ms: float, high_ms: float) -> tuple[list[float], list[str]]:
    values, labels = ticks_ms(max(high_ms, -low_ms))
    # The axis has room for about five labels.
    step = max(1, round(len(values) * (high_ms - low_ms) / max(high_ms, -low_ms) / 5))
    kept = [(v, w) for v, w in list(zip(values, labels, strict=True))[::step] if v > 0]
    ordered = [(-v, f"-{w}") for v, w in reversed(kept)] + [(0.0, "0")] + [(v, f"+{w}") for v, w in kept]
    shown = [(v, w) for v, w in ordered if low_ms <= v <= high_ms]
    return [v for v, _ in shown], [w for _, w in shown]


# --- words --------------------------------------------------------------------------------------------------------


def summary(checkpoint_comparison: CheckpointComparisonOut) -> str:
    """Return the comparison in words, for screen readers."""
    said = []
    for v in checkpoint_comparison.vertices:
        differing = [m for m in v.measures if m.measure in PHASES and m.difference]
        if differing:
            words = ", ".join(f"{PHASE_WORDS[PHASES[m.measure]]} {_signed(m.difference or 0)}" for m in differing)
            said.append(f"{v.vertex}: {words}")
    said += [
        f"{'other' if p.phase is None else WORDS[p.phase]} {_signed(p.difference_ms)}"
        for p in checkpoint_comparison.batch_parts
        if p.difference_ms
    ]
    return f"{checkpoint_comparison.headline} {'; '.join(said)}".strip()


def table(checkpoint_comparison: CheckpointComparisonOut) -> Table:
    """Return every difference as a row: of vertices, then of the subtasks of the opened vertex."""
    a, b = names(checkpoint_comparison)
    columns = ("vertex", "subtask", "measure", "unit", a, b, "difference", f"subtask in {a}", f"subtask in {b}")
    rows: list[tuple[Cell, ...]] = [
        _cells(v.vertex, None, m) for v in checkpoint_comparison.vertices for m in v.measures
    ]
    if checkpoint_comparison.opened is not None:
        vertex = checkpoint_comparison.opened.vertex
        rows += [_cells(vertex, s.subtask, m) for s in checkpoint_comparison.opened.subtasks for m in s.measures]
    rows += [
        (None, None, "other" if p.phase is None else WORDS[p.phase], "ms", p.a_ms, p.b_ms, p.difference_ms, None, None)
        for p in checkpoint_comparison.batch_parts
    ]
    return Table(columns, tuple(rows))


def _cells(vertex: str, subtask: int | None, m: MeasureDifferenceOut) -> tuple[Cell, ...]:
    which = "all" if subtask is None else subtask
    return (
        vertex, which, m.measure.value.replace("-", " "), m.unit.value, m.a, m.b, m.difference, m.a_subtask,
        m.b_subtask,
    )  # fmt: skip
