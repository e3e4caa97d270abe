"""Chooses the subtasks that the document of one checkpoint has.

One subtask is half a kilobyte in it, and a job may have a hundred thousand of them. So the document of a large
checkpoint has, of each vertex, only the subtasks that matter for the verdict. ``subtasks`` returns all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from backend.analysis.measures.phases import VertexPhases
from backend.contracts.api import VerdictOut
from backend.contracts.causes import CriticalPathOut
from backend.domain.ids import VertexId

INLINE_MAX: Final = 2_000
"""A checkpoint with at most this many subtasks has all of them in its document."""
_SHOWN_MAX = 1_000


def in_document(
    phases: Mapping[VertexId, VertexPhases], verdict: VerdictOut, path: CriticalPathOut | None
) -> Mapping[VertexId, Sequence[int]]:
    """Return the subtasks of each vertex that the document of the checkpoint has, in the order of their indices.

    Of a large checkpoint, these are the subtasks that the verdict names, those on the critical path, those that did not
    acknowledge, and the slowest ones.
    """
    if sum(map(len, phases.values())) <= INLINE_MAX:
        return {v: range(len(found)) for v, found in phases.items()}
    most = max(1, _SHOWN_MAX // len(phases))
    steps: dict[str, list[int]] = {}
    for step in () if path is None else path.steps:
        steps.setdefault(step.vertex_id, []).append(step.subtask)
    shown = {}
    for vertex_id, found in phases.items():
        named = verdict.subtasks if verdict.vertex_id == vertex_id else ()
        slowest = found.slowest_subtask
        first = chain(named, steps.get(vertex_id, ()), () if slowest is None else (slowest,), found.pending)
        wanted = dict.fromkeys(i for i in chain(first, _by_lateness(found)) if i < len(found))
        shown[vertex_id] = sorted(list(wanted)[:most])
    return shown


def _by_lateness(phases: VertexPhases) -> Iterator[int]:
    # A subtask without an acknowledgement has NaN, which sorts last, so it comes first here.
    return (int(i) for i in phases.ack_ms.argsort(kind="stable")[::-1])
