"""V6: draws one measure of the subtasks of a job over its checkpoints, as a heatmap.

A bright column is a bad moment, for example of the storage. A bright row is a bad subtask, with more data or a slow
host. A bright block of rows is a slow vertex or, if the rows are sorted by host, a slow host. A cell without a value is
hatched, and in the column of a failed checkpoint the hatch is orange. Columns of unaligned checkpoints have a purple
outline. The marks above the columns show the same.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from statistics import median

from backend.contracts.subtask_matrix import (
    MatrixGroup,
    MatrixRowOut,
    MatrixUnit,
    SubtaskMatrixOut,
)
from backend.domain.checkpoint import CheckpointStatus, SubtaskMeasure
from dashboard import text
from dashboard.figures.base import (
    MEASURED_NAMES,
    Cell,
    Chart,
    Table,
    Trace,
    axis,
    axis_title,
    empty,
    layout,
    note,
    ticks_ms,
    whole,
)
from dashboard.palette import FAILED, UNALIGNED, Theme

HEIGHT_PX = 400

MEASURE_WORDS: dict[SubtaskMeasure, str] = {
    SubtaskMeasure.DURATION: "duration",
    SubtaskMeasure.START_DELAY: "start delay",
    SubtaskMeasure.ALIGNMENT: "alignment",
    SubtaskMeasure.SYNC: "sync",
    SubtaskMeasure.ASYNC: "async",
    SubtaskMeasure.PERSISTED: "persisted in-flight bytes",
    SubtaskMeasure.CHECKPOINTED: "checkpointed size",
}
# The cells take this part of the height. The marks of the columns are above them.
_TOP = 0.93
# Over the hatch, it shows which cells have no value because their checkpoint failed.
_FAILED = "rgba(213,94,0,0.5)"
_LABELS_MAX = 20
_TICKS_MAX = 16
_NAME_MAX = 16
_NO_HOST = "host not reported"
# With more columns or rows, the cells have no gaps between them, because the gaps would be wider than the cells.
_COLUMNS_WITH_GAPS_MAX = 120
_ROWS_WITH_GAPS_MAX = 60


def heatmap(matrix: SubtaskMatrixOut, *, theme: Theme, is_log: bool = False, revision: str = "") -> Chart:
    """Draw ``matrix``. The ``x`` of a point is in ``column_names``, and its ``y`` in ``row_names``."""
    known = [v for row in matrix.values for v in row if v is not None]
    if not known:
        return empty(theme, _reason(matrix), height_px=HEIGHT_PX)
    columns, rows = column_names(matrix), row_names(matrix)
    step = math.ceil(len(columns) / _TICKS_MAX)
    failed = [c.status is CheckpointStatus.FAILED for c in matrix.checkpoints]
    unaligned = [bool(c.is_unaligned) for c in matrix.checkpoints]
    figure = {
        "data": [
            _cells(matrix, columns, rows, max(known), theme, is_log=is_log),
            _marks("failed", "x-thin", FAILED, columns, failed),
            _marks("unaligned", "square-open", UNALIGNED, columns, unaligned),
        ],
        "layout": layout(
            theme,
            height_px=HEIGHT_PX,
            meta=MEASURED_NAMES,
            revision=f"{revision} {matrix.measure} {matrix.group} {len(rows)}",
            margin={"l": 118, "r": 16, "t": 75, "b": 65},
            xaxis=axis(
                theme,
                type="category",
                categoryorder="array",
                categoryarray=columns,
                tickvals=columns[::step],
                range=[-0.5, len(columns) - 0.5],
                # A zoom chooses the range of the page. The columns are part of the revision, so that the zoom ends
                # when they change.
                uirevision=f"{columns[0]} {columns[-1]} {len(columns)}",
                showgrid=False,
            )
            | {"title": axis_title(theme, "checkpoint, oldest first", standoff_px=24)},
            yaxis=axis(
                theme,
                type="category",
                categoryorder="array",
                categoryarray=rows,
                # The first vertex of the graph is at the top.
                range=[len(rows) - 0.5, -0.5],
                domain=[0, _TOP],
                showticklabels=False,
                ticks="",
                showgrid=False,
            ),
            yaxis2={"domain": [_TOP + 0.01, 1], "range": [-1, 1], "visible": False, "fixedrange": True},
            annotations=[
                note(theme, label, 0, at, xref="paper", xanchor="right", xshift=-6) for at, label in _labels(matrix)
            ],
            # The style sheet hatches this area. It is visible where a cell has no value.
            plot_bgcolor=theme.unknown,
            shapes=[
                *(_column_area(run, layer="below", fillcolor=_FAILED, line={"width": 0}) for run in _runs(failed)),
                *(_line_above(row, theme) for row in _first_rows(matrix)[1:]),
                *(_column_area(run, line={"color": UNALIGNED, "width": 2}) for run in _runs(unaligned)),
            ],
            hovermode="closest",
        ),
    }
    return Chart(figure, _table(matrix, columns), _summary(matrix, columns, rows), HEIGHT_PX)


def column_names(matrix: SubtaskMatrixOut) -> list[str]:
    """Return a different name for each column: the id of its checkpoint, with the run if two runs used the id."""
    uses = Counter(c.checkpoint_id for c in matrix.checkpoints)
    return [
        str(c.checkpoint_id) if uses[c.checkpoint_id] == 1 else f"{c.checkpoint_id} of run {c.run_id[:8]}"
        for c in matrix.checkpoints
    ]


def row_names(matrix: SubtaskMatrixOut) -> list[str]:
    """Return a different name for each row, as it is displayed: the vertex with its subtask, or the host."""
    shown = {v.vertex_id: text.plain(text.short(v.vertex, 60)) for v in matrix.vertices}
    uses = Counter(shown.values())
    names = {i: name if uses[name] == 1 else f"{name} ({text.plain(i)})" for i, name in shown.items()}
    found = []
    for row in matrix.rows:
        host = text.plain(text.short(row.host or _NO_HOST, 60))
        if row.vertex_id is None:
            found.append(host)
            continue
        name = names[row.vertex_id] + ("" if row.subtask is None else f" subtask {row.subtask}")
        found.append(f"{name} on {host}" if matrix.group is MatrixGroup.HOST and row.host else name)
    return found


def _folded_words(matrix: SubtaskMatrixOut) -> str:
    if not matrix.is_folded:
        return ""
    is_sum = matrix.group is MatrixGroup.HOST and matrix.unit is MatrixUnit.BYTES
    return f"{'sum' if is_sum else 'largest'} of its subtasks, "


def _reason(matrix: SubtaskMatrixOut) -> str:
    if not matrix.checkpoints:
        return "No checkpoint has ended in this range."
    if all(c.are_arrays_removed for c in matrix.checkpoints):
        return "The values of the subtasks in these checkpoints have been removed, as the retention policy says."
    return "No subtask reported this measure in these checkpoints."


def _cells(
    matrix: SubtaskMatrixOut, columns: list[str], rows: list[str], highest: int, theme: Theme, *, is_log: bool
) -> Trace:
    values: Sequence[Sequence[float | None]] = matrix.values
    if is_log:
        values = [[None if v is None else _log(v) for v in row] for row in values]
    at, labels = _scale(highest, matrix.unit, is_log=is_log)
    words = _words(matrix.unit)
    # In gaps between the cells, the hatch of cells without a value would look like broken lines.
    is_full = all(v is not None for row in matrix.values for v in row)
    return {
        "type": "heatmap",
        "x": columns,
        "y": rows,
        "z": values,
        "zmin": 0,
        "zmax": max(_log(highest) if is_log else highest, 1e-9),
        "colorscale": "Cividis",
        "hoverongaps": False,
        "xgap": 1 if is_full and len(columns) <= _COLUMNS_WITH_GAPS_MAX else 0,
        "ygap": 1 if is_full and len(rows) <= _ROWS_WITH_GAPS_MAX else 0,
        "text": [["" if v is None else words(v) for v in row] for row in matrix.values],
        "hovertemplate": (
            f"<b>%{{y}}</b><br>checkpoint %{{x}}<br>{MEASURE_WORDS[matrix.measure]} "
            f"%{{text}} ({_folded_words(matrix)}measured)<extra></extra>"
        ),
        "colorbar": {
            # The colour bar is above the cells, because on a phone there is no room at their side.
            "orientation": "h",
            "x": 1,
            "xanchor": "right",
            "y": 1,
            "yanchor": "bottom",
            "len": 0.9,
            "thickness": 10,
            "outlinewidth": 0,
            "tickfont": {"size": 11, "color": theme.muted},
            "tickvals": at,
            "ticktext": labels,
        },
    }


def _log(value: float) -> float:
    # A value may be 0 or, because of clocks that differ, negative. Such a value is drawn like 1 ms or 1 byte.
    return math.log10(max(value, 1))


def _scale(highest: int, unit: MatrixUnit, *, is_log: bool) -> tuple[list[float], list[str]]:
    """Return the positions and labels of the colour bar's ticks."""
    if not is_log and unit is MatrixUnit.MS:
        return ticks_ms(max(highest, 1))
    values = [float(10**e) for e in range(int(_log(highest)) + 1)] if is_log else [highest * i / 4 for i in range(5)]
    words = _words(unit)
    return [_log(v) for v in values] if is_log else values, [whole(words(v)) for v in values]


def _words(unit: MatrixUnit) -> Callable[[float | None], str]:
    return text.size if unit is MatrixUnit.BYTES else text.duration


def _marks(name: str, symbol: str, color: str, columns: Sequence[str], chosen: Sequence[bool]) -> Trace:
    """Return the marks above the chosen columns."""
    x = [c for c, is_chosen in zip(columns, chosen, strict=True) if is_chosen]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "yaxis": "y2",
        "x": x,
        "y": [0] * len(x),
        "marker": {"symbol": symbol, "size": 8, "color": color, "line": {"width": 1.5, "color": color}},
        "hovertemplate": f"checkpoint %{{x}}: {name}<extra></extra>",
    }


def _runs(chosen: Sequence[bool]) -> list[tuple[int, int]]:
    """Return the first and the last index of each run of chosen columns."""
    runs: list[tuple[int, int]] = []
    for i, is_chosen in enumerate(chosen):
        if is_chosen and runs and runs[-1][1] == i - 1:
            runs[-1] = runs[-1][0], i
        elif is_chosen:
            runs.append((i, i))
    return runs


def _column_area(run: tuple[int, int], **more: object) -> dict[str, object]:
    """Return a rectangle over the cells of neighbouring columns."""
    first, last = run
    return {"type": "rect", "x0": first - 0.5, "x1": last + 0.5, "yref": "paper", "y0": 0, "y1": _TOP} | more


def _block(matrix: SubtaskMatrixOut, row: MatrixRowOut) -> str | None:
    """Return what a row shares with those of its block: the vertex or the host."""
    return row.host if matrix.group is MatrixGroup.HOST else row.vertex_id


def _first_rows(matrix: SubtaskMatrixOut) -> list[int]:
    """Return the index of the first row of each vertex or host."""
    blocks = [_block(matrix, row) for row in matrix.rows]
    return [i for i, block in enumerate(blocks) if i == 0 or blocks[i - 1] != block]


def _labels(matrix: SubtaskMatrixOut) -> list[tuple[float, str]]:
    """Return the positions and texts of the labels of rows: of each block, or of the subtasks of the only vertex."""
    rows, begins = matrix.rows, _first_rows(matrix)
    is_by_host = matrix.group is MatrixGroup.HOST
    if len(begins) == 1 and len(rows) > 1 and not is_by_host:
        return [(i, f"subtask {rows[i].subtask}") for i in range(0, len(rows), math.ceil(len(rows) / _LABELS_MAX))]
    names = {v.vertex_id: v.vertex for v in matrix.vertices}
    ends = [*begins[1:], len(rows)]
    step = math.ceil(len(begins) / _LABELS_MAX)
    labels = []
    for begin, end in list(zip(begins, ends, strict=True))[::step]:
        block = _block(matrix, rows[begin])
        name = block or _NO_HOST if is_by_host else names.get(block or "", "")
        labels.append(((begin + end - 1) / 2, text.plain(text.short(name, _NAME_MAX))))
    return labels


def _line_above(row: int, theme: Theme) -> dict[str, object]:
    line = {"color": theme.surface, "width": 2}
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": row - 0.5, "y1": row - 0.5, "line": line}


def _summary(matrix: SubtaskMatrixOut, columns: Sequence[str], rows: Sequence[str]) -> str:
    """Return the largest value, and the row and the column that stand out, as a sentence for screen readers."""
    words = text.size if matrix.unit is MatrixUnit.BYTES else text.duration
    cells = [(v, r, c) for r, row in enumerate(matrix.values) for c, v in enumerate(row) if v is not None]
    highest, row, column = max(cells)
    by_row = [_median(row) for row in matrix.values]
    by_column = [_median([row[c] for row in matrix.values]) for c in range(len(columns))]
    worst_row, worst_column = by_row.index(max(by_row)), by_column.index(max(by_column))
    by = matrix.group.value if matrix.is_folded else "subtask"
    return (
        f"{MEASURE_WORDS[matrix.measure].capitalize()} in {len(columns)} checkpoints, by {by}."
        f" The largest value is {words(highest)}, of {rows[row]} in checkpoint {columns[column]}."
        f" {rows[worst_row]} has the largest median, {words(by_row[worst_row])}; checkpoint {columns[worst_column]} has"
        f" the largest median over all rows, {words(by_column[worst_column])}."
    )


def _median(values: Sequence[int | None]) -> float:
    known = [v for v in values if v is not None]
    return median(known) if known else -math.inf


def _table(matrix: SubtaskMatrixOut, columns: Sequence[str]) -> Table:
    names: dict[str | None, str] = {v.vertex_id: v.vertex for v in matrix.vertices}
    is_by_host = matrix.group is MatrixGroup.HOST
    own = ("host", "vertex", "subtask") if is_by_host else ("vertex", "subtask")
    heads = (*own, *(f"checkpoint {c} ({matrix.unit.value})" for c in columns))
    rows: list[tuple[Cell, ...]] = []
    for row, values in zip(matrix.rows, matrix.values, strict=True):
        rows.append((*((row.host,) if is_by_host else ()), names.get(row.vertex_id), row.subtask, *values))
    return Table(heads, tuple(rows))
