"""Draws the phases of Spark micro-batches: one bar for each batch, in the order in which Spark runs the phases."""

from __future__ import annotations

from collections.abc import Sequence

from backend.contracts.micro_batches import MicroBatchOut
from backend.domain.micro_batch import BatchPhase
from dashboard import text
from dashboard.figures.base import Chart, Table, Trace, axis, empty, layout, ticks_ms
from dashboard.palette import Theme

# The colours are from Okabe and Ito's palette, like those of the phases of subtasks. The phases that write to the
# checkpoint location are blue.
COLORS: dict[BatchPhase, str] = {
    BatchPhase.LATEST_OFFSET: "#E69F00",
    BatchPhase.WAL_COMMIT: "#56B4E9",
    BatchPhase.GET_BATCH: "#F0E442",
    BatchPhase.QUERY_PLANNING: "#CC79A7",
    BatchPhase.ADD_BATCH: "#009E73",
    BatchPhase.COMMIT_OFFSETS: "#0072B2",
}
WORDS: dict[BatchPhase, str] = {
    BatchPhase.LATEST_OFFSET: "ask sources",
    BatchPhase.WAL_COMMIT: "write offsets file",
    BatchPhase.GET_BATCH: "get batch",
    BatchPhase.QUERY_PLANNING: "plan",
    BatchPhase.ADD_BATCH: "run the query",
    BatchPhase.COMMIT_OFFSETS: "write commits file",
}
_OTHER = "other"
_ROW_PX = 26
_COLUMNS = (
    "batch",
    "run",
    "triggered",
    "duration (ms)",
    *(f"{w} (ms)" for w in WORDS.values()),
    f"{_OTHER} (ms)",
    "rows",
)


def phases(batches: Sequence[MicroBatchOut], *, theme: Theme) -> Chart:
    """Draw ``batches``, which are oldest first. The newest batch is at the top."""
    known = [b for b in reversed(batches) if b.phases]
    if not known:
        return empty(theme, "Spark reported no phases. It reports none for a batch that failed.", height_px=120)
    rows = list(range(len(known)))
    longest = max(b.duration_ms or sum(p.duration_ms for p in b.phases) for b in known)
    ticks, labels = ticks_ms(longest)
    height_px = 60 + _ROW_PX * len(known)
    figure = {
        "data": [*(_trace(p, known, rows, theme) for p in BatchPhase), _other(known, rows, theme)],
        "layout": layout(
            theme,
            height_px=height_px,
            revision="micro-batches",
            barmode="stack",
            bargap=0.25,
            xaxis=axis(theme, "since the trigger", tickvals=ticks, ticktext=labels, rangemode="tozero"),
            yaxis=axis(
                theme,
                tickvals=rows,
                ticktext=[f"batch {b.checkpoint_id}" for b in known],
                autorange="reversed",
                showgrid=False,
            ),
        ),
    }
    return Chart(figure, _table(batches), _summary(known[0]), height_px)


def _trace(phase: BatchPhase, batches: Sequence[MicroBatchOut], rows: Sequence[int], theme: Theme) -> Trace:
    values = [next((p.duration_ms for p in b.phases if p.phase is phase), None) for b in batches]
    return _bar(WORDS[phase], COLORS[phase], values, batches, rows, theme, "")


def _other(batches: Sequence[MicroBatchOut], rows: Sequence[int], theme: Theme) -> Trace:
    return _bar(
        _OTHER, theme.unknown, [b.other_ms for b in batches], batches, rows, theme, " (reconstructed: the rest)"
    )


def _bar(
    word: str,
    color: str,
    values: Sequence[int | None],
    batches: Sequence[MicroBatchOut],
    rows: Sequence[int],
    theme: Theme,
    basis: str,
) -> Trace:
    return {
        "type": "bar",
        "orientation": "h",
        "name": word,
        "y": list(rows),
        "x": list(values),
        "marker": {"color": color, "line": {"color": theme.outline, "width": 0.5}},
        "hovertext": [
            f"<b>batch {b.checkpoint_id}</b><br>{word} {text.duration(v)}{basis}"
            for b, v in zip(batches, values, strict=True)
        ],
        "hovertemplate": "%{hovertext}<extra></extra>",
    }


def _table(batches: Sequence[MicroBatchOut]) -> Table:
    rows = []
    for b in reversed(batches):
        took = {p.phase: p.duration_ms for p in b.phases}
        rows.append(
            (
                b.checkpoint_id,
                b.run_id,
                b.triggered_at.isoformat(),
                b.duration_ms,
                *(took.get(p) for p in BatchPhase),
                b.other_ms,
                b.input_row_count,
            )
        )
    return Table(_COLUMNS, tuple(rows))


def _summary(newest: MicroBatchOut) -> str:
    said = ", ".join(f"{WORDS[p.phase]} {text.duration(p.duration_ms)}" for p in newest.phases)
    return f"Batch {newest.checkpoint_id}, {text.duration(newest.duration_ms)}: {said}."
