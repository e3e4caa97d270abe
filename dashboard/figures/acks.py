"""V8: draws the acknowledgements of a checkpoint over the time since its trigger, and those of earlier checkpoints."""

from __future__ import annotations

from backend.contracts.progress import AckPointOut, ProgressOut
from dashboard import text
from dashboard.figures.base import Chart, Table, Trace, axis, layout, note, ticks_ms
from dashboard.palette import ACKED, FAILED, Theme

HEIGHT_PX = 210


def acknowledgements(progress: ProgressOut, *, theme: Theme) -> Chart:
    """Draw the checkpoint's curve in front of the curves of the last completed checkpoints, and the timeout."""
    current = [*progress.acks, AckPointOut(elapsed_ms=progress.elapsed_ms, acknowledged=progress.acknowledged)]
    traces = [_curve(curve, theme.unknown, 1.2, "earlier checkpoints") for curve in progress.past_acks if curve]
    traces.append(_curve(current, ACKED, 3, "this checkpoint"))
    seen_ms = max(p.elapsed_ms for p in [*current, *(q for c in progress.past_acks for q in c)])
    timeout_ms = progress.timeout_ms
    is_near = timeout_ms is not None and timeout_ms <= 3 * max(seen_ms, 1)
    end_ms = max(seen_ms, timeout_ms if is_near and timeout_ms else 0, 1) * 1.04
    values, labels = ticks_ms(end_ms, steps_max=5)
    # The margins are large enough for the labels. A margin that fits itself depends on earlier drawings.
    still = {"tickangle": 0, "automargin": False}
    shapes = [_total_line(progress.total, theme)]
    notes = [note(theme, f"all {progress.total}", 0, progress.total, xanchor="left", yanchor="bottom")]
    if is_near and timeout_ms is not None:
        shapes.append(_timeout_line(timeout_ms))
        notes.append(note(theme, "timeout", timeout_ms, 0, xanchor="right", yanchor="bottom", textangle=-90))
    figure = {
        "data": traces,
        "layout": layout(
            theme,
            height_px=HEIGHT_PX,
            revision=f"acks{progress.checkpoint_id}",
            margin={"l": 44, "r": 12, "t": 18, "b": 42},
            xaxis=axis(theme, "since trigger", tickvals=values, ticktext=labels, range=[0, end_ms], **still),
            yaxis=axis(theme, "acknowledged", range=[0, max(progress.total, 1) * 1.18], rangemode="tozero", **still),
            shapes=shapes,
            annotations=notes,
        ),
    }
    earlier = [(f"earlier {i + 1}", c) for i, c in enumerate(progress.past_acks)]
    named = [("this checkpoint", current), *earlier]
    table = Table(
        ("curve", "since trigger (ms)", "acknowledged"),
        tuple((name, p.elapsed_ms, p.acknowledged) for name, curve in named for p in curve),
    )
    summary = (
        f"{progress.acknowledged} of {progress.total} subtasks acknowledged "
        f"after {text.duration(progress.elapsed_ms)}; "
        f"{len(progress.past_acks)} earlier checkpoints for comparison."
    )
    return Chart(figure, table, summary, HEIGHT_PX)


def _curve(points: list[AckPointOut], color: str, width: float, name: str) -> Trace:
    start = [AckPointOut(elapsed_ms=0, acknowledged=0)] if points and points[0].elapsed_ms > 0 else []
    steps = [*start, *points]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": [p.elapsed_ms for p in steps],
        "y": [p.acknowledged for p in steps],
        "line": {"shape": "hv", "color": color, "width": width},
        "text": [text.duration(p.elapsed_ms) for p in steps],
        "hovertemplate": "%{y} acknowledged after %{text}<extra>" + name + "</extra>",
    }


def _total_line(total: int, theme: Theme) -> dict[str, object]:
    line = {"color": theme.muted, "width": 1, "dash": "dot"}
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": total, "y1": total, "line": line}


def _timeout_line(timeout_ms: int) -> dict[str, object]:
    line = {"color": FAILED, "width": 1.5, "dash": "dash"}
    return {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": timeout_ms, "x1": timeout_ms, "line": line}
