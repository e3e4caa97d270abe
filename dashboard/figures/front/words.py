"""Writes the texts of the barrier front: labels, summary and table."""

from __future__ import annotations

from dashboard import text
from dashboard.figures.base import Table, note
from dashboard.figures.front.places import RADIUS
from dashboard.figures.front.senders import held_by
from dashboard.figures.front.times import Front, FrontVertex, SubtaskState, SubtaskTimes
from dashboard.figures.front.vertices import DOT, block_of, shown_subtasks
from dashboard.palette import FAILED, Theme

NAME_MAX = 28


def summary(front: Front, at_ms: float) -> str:
    """Return a summary that states, for each vertex, how many subtasks the barrier has reached at ``at_ms``."""
    parts = []
    for v in front.vertices:
        if not v.subtasks:
            parts.append(f"{v.name}: not reported")
            continue
        counts = v.counts(at_ms)
        past = len(v.subtasks) - counts[SubtaskState.NOT_REACHED]
        finished = sum(s.has_finished for s in v.subtasks)
        parts.append(
            f"{v.name}: barrier at {past - finished} of {len(v.subtasks)}, "
            f"{counts[SubtaskState.ACKNOWLEDGED] - finished} acknowledged"
            + (f", {finished} had finished before" if finished else "")
        )
    return f"{text.duration(at_ms)} after the trigger. " + "; ".join(parts) + "."


def vertex_labels(
    vertex: FrontVertex,
    place: tuple[float, float],
    at_ms: float,
    theme: Theme,
    *,
    is_open: bool,
    has_name: bool = True,
    name_max: int = NAME_MAX,
) -> list[dict[str, object]]:
    """Return the labels of a vertex: its name above, with at most ``name_max`` characters, and its counts below."""
    shown = len(shown_subtasks(vertex))
    half = DOT * (block_of(vertex)[1] - 1) / 2 + 16 if is_open else RADIUS + 4
    name = text.plain(text.short(vertex.name, name_max))
    font = {"size": 12, "color": theme.text}
    label = note(theme, f"<b>{name}</b>", place[0], place[1] + half, yanchor="bottom", font=font, bgcolor=theme.surface)
    notes = [label] if has_name else []
    below = []
    if is_open and shown < len(vertex.subtasks):
        below.append(f"the {shown} slowest of {len(vertex.subtasks)}")
    if is_open:
        counts = vertex.counts(at_ms)
        below.append(f"{len(vertex.subtasks) - counts[SubtaskState.NOT_REACHED]}/{len(vertex.subtasks)} reached")
    if below:
        notes.append(note(theme, "<br>".join(below), place[0], place[1] - half, yanchor="top"))
    if vertex.is_guilty:
        notes.append(
            note(
                theme, "named by the verdict", place[0], place[1] - half, yanchor="top", yshift=-16 * len(below) - 2,
                font={"size": 11, "color": theme.text}, bordercolor=FAILED, borderpad=2, bgcolor=theme.surface,
            )
        )  # fmt: skip
    return notes


def table(front: Front, at_ms: float) -> Table:
    """Return the times of each subtask, with its state at ``at_ms``."""
    rows = tuple(
        (
            v.name, s.subtask, s.host, _state(s, at_ms), s.first_ms, s.last_ms, s.snapshot_ms, s.ack_ms,
            front.basis.value, held.get(s.subtask),
        )
        for v, held in ((v, held_by(v, front)) for v in front.vertices)
        for s in v.subtasks
    )  # fmt: skip
    columns = (
        "vertex", "subtask", "host", f"state at {text.duration(at_ms)}", "first barrier (ms)", "last barrier (ms)",
        "snapshot (ms)", "ack (ms)", "basis", "last barrier from",
    )  # fmt: skip
    return Table(columns, rows)


def _state(subtask: SubtaskTimes, at_ms: float) -> str:
    return "had finished" if subtask.has_finished else subtask.state(at_ms)


def table_of_times(front: Front) -> Table:
    """Return the times of each subtask of a large job, without states and senders, so that it is sent only once."""
    rows = tuple(
        (v.name, s.subtask, s.host, s.first_ms, s.last_ms, s.snapshot_ms, s.ack_ms, front.basis.value)
        for v in front.vertices
        for s in v.subtasks
    )
    columns = (
        "vertex",
        "subtask",
        "host",
        "first barrier (ms)",
        "last barrier (ms)",
        "snapshot (ms)",
        "ack (ms)",
        "basis",
    )
    return Table(columns, rows)
