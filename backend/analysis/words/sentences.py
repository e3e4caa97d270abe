"""Writes numbers, subtasks and vertices in words, for sentences and rows of evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from backend.domain.spelling import count, duration, factor, percent, quantity, rate, size
from backend.domain.text import shortened
from backend.domain.verdict import Phase

__all__ = (
    "PHASE_WORDS", "all_of_the_last", "beside", "checkpoints", "count", "duration", "listed", "of_the_last", "percent",
    "quantity", "rate", "rounded", "size", "subtasks", "times", "utc_minute", "vertex", "where",
)  # fmt: skip

PHASE_WORDS: Final[Mapping[Phase, str]] = {
    Phase.START_DELAY: "way of the barrier to",
    Phase.ALIGNMENT: "alignment of",
    Phase.SYNC: "sync part of",
    Phase.ASYNC: "async part of",
    Phase.ACK_WAIT: "acknowledgement of",
}
"""The phases of a checkpoint, in words that the name of a subtask follows."""

_NAMED_MAX = 6
# Names of hosts are long.
_HOSTS_MAX = 4


def rounded(value: float) -> float:
    """Return the number as it is rounded in evidence. Sentences use the rounded number too, so that both agree."""
    return round(float(value), 4)


def beside(ms: float, other_ms: float) -> str:
    """Return ``duration(ms)``, with hundredths (``3.98 s``) if both texts would otherwise be the same."""
    plain = duration(ms)
    return f"{ms / 1000:.2f} s" if ms != other_ms and plain == duration(other_ms) and 995 <= ms < 59_950 else plain


def times(ratio: float) -> str:
    """Return a factor in words: ``2.4 times``, ``12 times``."""
    return f"{factor(rounded(ratio))} times"


def utc_minute(at: datetime) -> str:
    """Return the date and the time to the minute, in UTC."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def listed(items: Sequence[str]) -> str:
    """Join the items: ``a``, ``a and b``, ``a, b and c``."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


def subtasks(indices: Sequence[int], total: int | None = None) -> str:
    """Name the subtasks: ``subtask 2``, ``subtasks 1, 3 and 0``, ``both subtasks``, ``all 4 subtasks``.

    If there are many, the text ends in ``and 3 more``.
    """
    if total is not None and total > 1 and len(set(indices)) == total:
        return "both subtasks" if total == 2 else f"all {total} subtasks"
    if len(indices) == 1:
        return f"subtask {indices[0]}"
    if len(indices) > _NAMED_MAX:
        named = ", ".join(str(i) for i in indices[:_NAMED_MAX])
        return f"subtasks {named} and {len(indices) - _NAMED_MAX} more"
    return f"subtasks {listed([str(i) for i in indices])}"


def hosts(names: Sequence[str]) -> str:
    """Join the names of hosts. If there are many, the text ends in ``and 16 more hosts``."""
    if len(names) > _HOSTS_MAX:
        return f"{', '.join(names[:_HOSTS_MAX])} and {len(names) - _HOSTS_MAX} more hosts"
    return listed(names)


def where(vertex_name: str, indices: Sequence[int], total: int) -> str:
    """Name the subtasks of a vertex: ``map subtask 2``, ``all 4 subtasks of map``.

    For a vertex with one subtask, or without subtasks to name, the text is only the vertex's name.
    """
    if total == 1 or not indices:
        return vertex_name
    who = subtasks(indices, total)
    return f"{who} of {vertex_name}" if len(set(indices)) == total else f"{vertex_name} {who}"


def checkpoints(count: int) -> str:
    """Return the number of checkpoints in words: ``1 checkpoint``, ``3 checkpoints``."""
    return f"{count} checkpoint{'' if count == 1 else 's'}"


def all_of_the_last(count: int) -> str:
    """Return the start of a sentence: ``All of the last 5 checkpoints``, ``The newest checkpoint``."""
    if count < 2:
        return "The newest checkpoint"
    return f"{'Both' if count == 2 else 'All'} of the last {count} checkpoints"


def of_the_last(part: int, count: int) -> str:
    """Return the start of a sentence: ``2 of the last 5 checkpoints``, ``The newest checkpoint``."""
    return f"{part} of the last {count} checkpoints" if count > 1 else "The newest checkpoint"


def vertex(name: str) -> str:
    """Return a vertex's name on one line, shortened in its middle to 80 characters.

    Chained operators, and SQL above all, can make a name of hundreds of characters.
    """
    return shortened(name)
