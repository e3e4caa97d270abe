"""Computes, for each vertex, the barrier's delay at its input, the delay that it adds and the delay passed on.

The delay at a vertex's input is the largest start delay (trigger to first barrier) of its subtasks. The delay passed on
is the largest start delay of the subtasks of its direct downstream vertices. The delay added is the difference of these
two delays. It consists of alignment, the sync part, and the data queued between the vertices. Materialize separates a
view's local lag from its global lag in the same way.

The added delays of a chain sum to its last start delay minus its first one.

Limits: the engine does not report which subtask sent a first barrier, so the delays added and passed on are
reconstructed. The delay added is negative if the next vertex got its first barrier from a subtask that was quicker than
the slowest one, or from another input. The delay that the slowest subtask causes then appears as alignment at the next
vertex. An unaligned barrier overtakes queued data, so it adds little delay at any vertex. A start delay compares the
clocks of two machines, so it contains the difference of these clocks.

Invariant: if one start delay is not known, the vertex's delay is None, and so is every value that depends on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

import numpy as np

from backend.analysis.measures.critical_path import Phases
from backend.analysis.measures.phases import VertexPhases
from backend.domain.ids import VertexId
from backend.domain.topology import Topology
from backend.domain.verdict import Basis


@dataclass(frozen=True, slots=True)
class VertexDelay:
    """The delays of the barrier at one vertex in milliseconds. None means *not known*.

    A sink passes no delay on. Neither does a vertex that had finished.
    """

    vertex_id: VertexId
    start_delay_max_ms: int | None
    delay_added_ms: int | None
    delay_passed_on_ms: int | None
    delay_basis: Basis | None
    """The basis of ``delay_added_ms`` and ``delay_passed_on_ms``; None if both are missing."""


def vertex_delays(topology: Topology, phases: Phases) -> Mapping[VertexId, VertexDelay]:
    """Return the delays at every vertex in ``phases``, which are of one checkpoint or savepoint."""
    at_input = {vertex_id: _latest_of(subtasks) for vertex_id, subtasks in phases.items()}
    finished = {vertex_id for vertex_id, subtasks in phases.items() if len(subtasks) and subtasks.has_finished.all()}
    return {vertex_id: _delay(topology, vertex_id, at_input, finished) for vertex_id in phases}


def _delay(
    topology: Topology, vertex_id: VertexId, at_input: Mapping[VertexId, int | None], finished: Set[VertexId]
) -> VertexDelay:
    own = at_input[vertex_id]
    # A vertex that has finished forwards no barrier, and none arrives at it.
    downstream = [] if vertex_id in finished else topology.downstream(vertex_id)
    passed_on = _latest([at_input.get(v) for v in downstream if v not in finished])
    return VertexDelay(
        vertex_id=vertex_id,
        start_delay_max_ms=own,
        delay_added_ms=None if own is None or passed_on is None else passed_on - own,
        delay_passed_on_ms=passed_on,
        delay_basis=None if passed_on is None else Basis.RECONSTRUCTED,
    )


def _latest_of(subtasks: VertexPhases) -> int | None:
    """Return the largest start delay of the subtasks, or None if there are none or one of them is not known.

    Subtasks that had finished have none.
    """
    delays_ms = subtasks.first_barrier_ms[~subtasks.has_finished]
    return int(delays_ms.max()) if delays_ms.size and not np.isnan(delays_ms).any() else None


def _latest(delays_ms: list[int | None]) -> int | None:
    """Return the largest of the delays, or None if there are none.

    If one delay is not known, the result is None too, because that one could be the largest.
    """
    known = [d for d in delays_ms if d is not None]
    return max(known) if known and len(known) == len(delays_ms) else None
