"""Draws the mark of each checkpoint on the timeline: its shape, colour, size and hover text."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from datetime import datetime, tzinfo

from backend.contracts.api import CheckpointOut
from backend.domain.checkpoint import CheckpointKind, CheckpointStatus
from backend.domain.checkpoint_mode import AT_LEAST_ONCE, MODE_WORDS
from backend.domain.protocols import TRAITS
from dashboard import text
from dashboard.figures.base import Trace
from dashboard.palette import ALIGNED, AT_LEAST_ONCE_COLOR, CHANDY_LAMPORT, FAILED, STATUS_WORDS, UNALIGNED, Theme
from dashboard.span import epoch_ms

_SMALL_PX = 6.5


def shape_of(checkpoint: CheckpointOut) -> str:
    if checkpoint.status is CheckpointStatus.FAILED:
        return "failed"
    if checkpoint.status is CheckpointStatus.IN_PROGRESS:
        return "end not seen" if checkpoint.is_lost else "in progress"
    return "completed" if checkpoint.kind is CheckpointKind.CHECKPOINT else "savepoint"


def state_words(checkpoint: CheckpointOut) -> str:
    return "end not seen" if checkpoint.is_lost else STATUS_WORDS[checkpoint.status]


def is_micro_batch(checkpoint: CheckpointOut) -> bool:
    # A micro-batch has no subtasks and no barriers, so it has no mode, no alignment and no in-flight data.
    return checkpoint.subtask_count is None


def mode_of(checkpoint: CheckpointOut) -> str:
    if is_micro_batch(checkpoint):
        return _MICRO_BATCH
    return "mode not reported" if checkpoint.mode is None else MODE_WORDS.get(checkpoint.mode, checkpoint.mode)


_SYMBOLS = {
    "completed": "circle",
    "savepoint": "square",
    "failed": "x",
    "in progress": "circle-open",
    "end not seen": "circle-cross-open",
}

_MICRO_BATCH = "micro-batch"

_COLORS = {
    "aligned": ALIGNED,
    "unaligned": UNALIGNED,
    **{traits.words: CHANDY_LAMPORT if traits.has_markers else UNALIGNED for traits in TRAITS.values()},
    # The colour of its swatch. Orange stands for failed checkpoints.
    MODE_WORDS[AT_LEAST_ONCE]: AT_LEAST_ONCE_COLOR,
    _MICRO_BATCH: ALIGNED,
}


def shown_duration_ms(checkpoint: CheckpointOut, now: datetime) -> float:
    if checkpoint.end_to_end_duration_ms is not None:
        return float(checkpoint.end_to_end_duration_ms)
    if checkpoint.failed_at is not None:
        # The checkpoint ended when it failed.
        now = checkpoint.failed_at
    elif checkpoint.is_lost:
        # The end of the checkpoint was not seen, so its duration is the time until its last acknowledgement.
        now = checkpoint.latest_ack_at or checkpoint.triggered_at
    return max(0.0, (now - checkpoint.triggered_at).total_seconds() * 1000)


def checkpoint_marks(
    members: Sequence[CheckpointOut],
    shape: str,
    mode: str,
    theme: Theme,
    where: tzinfo,
    now: datetime,
    most_ms: float | None = None,
    small: Collection[tuple[str, int]] = (),
) -> Trace:
    color = FAILED if shape == "failed" else _COLORS.get(mode, theme.unknown)
    is_open = shape in ("in progress", "end not seen")
    return {
        "type": "scatter",
        "mode": "markers",
        "name": f"{shape}, {mode}",
        "x": [text.axis_instant(c.triggered_at, where) for c in members],
        "y": [min(shown_duration_ms(c, now), most_ms or math.inf) for c in members],
        "customdata": [[c.run_id, c.checkpoint_id, epoch_ms(c.triggered_at)] for c in members],
        "hovertext": [_hover(c, where, now) for c in members],
        "hovertemplate": "%{hovertext}<extra></extra>",
        # Draw marks near zero in full, even if they extend beyond the axis.
        "cliponaxis": False,
        "marker": {
            "symbol": _SYMBOLS[shape],
            "color": color,
            "size": [_SMALL_PX if (c.run_id, c.checkpoint_id) in small else _size(c) for c in members],
            # If the opacity is not set, Plotly makes marks of different sizes translucent.
            "opacity": 1,
            "line": {"width": 2, "color": color} if is_open else {"width": 0.5, "color": theme.surface},
        },
    }


def _size(checkpoint: CheckpointOut) -> float:
    persisted = checkpoint.persisted_bytes or 0
    return 9.0 if persisted <= 0 else min(24.0, 9.0 + 1.6 * math.log2(1 + persisted / 65_536))


def _barrier_lines(c: CheckpointOut) -> list[str]:
    if is_micro_batch(c):
        return []
    return [
        f"acknowledged {c.acknowledged_count} of {c.subtask_count}",
        f"start delay up to {_least(c, text.duration(c.start_delay_max_ms))}, "
        f"alignment up to {_least(c, text.duration(c.alignment_max_ms))}",
        f"persisted in-flight {_least(c, text.size(c.persisted_bytes))}",
    ]


def _least(c: CheckpointOut, words: str) -> str:
    # The hover text of a figure is markup.
    return text.plain(text.bounded(words, is_lower_bound=c.is_lower_bound))


def _how_known(c: CheckpointOut) -> str:
    if c.end_to_end_duration_ms is not None:
        return ""
    # Spark reports neither trigger nor duration of a failed micro-batch. The batch began after the previous one
    # ended, so the time since then is an upper limit.
    return " at most (reconstructed)" if c.failed_at is not None and is_micro_batch(c) else " so far"


def _hover(checkpoint: CheckpointOut, where: tzinfo, now: datetime) -> str:
    c = checkpoint
    lines = [
        f"<b>{c.kind.value} {c.checkpoint_id}</b> {state_words(c)}, {c.course or mode_of(c)}",
        f"{text.duration(shown_duration_ms(c, now))}{_how_known(c)}",
        *_barrier_lines(c),
        f"{text.instant(c.triggered_at, where)} ({text.instant_utc(c.triggered_at)})",
    ]
    if c.failure_message or c.failure_reason:
        reason = c.failure_reason.value if c.failure_reason else ""
        lines.insert(2, text.plain(text.short(c.failure_message or reason, 80)))
    return "<br>".join(lines)
