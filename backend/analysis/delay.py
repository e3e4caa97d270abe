"""Where on its way a barrier was delayed: per vertex the delay at its input, added by it, and passed on.

The delay at a vertex's input is the start delay (trigger to first barrier) of its subtasks, the latest of them. The
delay passed on is the latest start delay over the subtasks of its direct downstream vertices. The difference is the
delay added here: what lies between two first barriers, which is alignment, the sync part, and the data queued between
the vertices. So Materialize separates a view's local lag from its global lag.

The differences telescope: along a chain, the delays added sum up to the last start delay less the first one.

Limits: the engine does not report which subtask sent a first barrier, so both numbers are reconstructed. A difference
is negative if the next vertex got its first barrier from a quicker subtask, or from another of its inputs; what the
late one held back shows as alignment there. An unaligned barrier overtakes queued data, so it adds little anywhere.
Start delays are read from the clocks of two machines.

Invariant: missing is missing. One unknown start delay makes the vertex's delay None, and what rests on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from backend.analysis.critical_path import Phases
from backend.domain.ids import VertexId
from backend.domain.topology import Topology
from backend.domain.verdict import Basis


@dataclass(frozen=True, slots=True)
class VertexDelay:
    """The delays of one vertex in milliseconds. None is *not known*; a sink passes none on."""

    vertex_id: VertexId
    start_delay_max_ms: int | None
    delay_added_ms: int | None
    delay_passed_on_ms: int | None
    delay_basis: Basis | None
    """Of ``delay_added_ms`` and ``delay_passed_on_ms``; None if both are missing."""


def vertex_delays(topology: Topology, phases: Phases) -> Mapping[VertexId, VertexDelay]:
    """The delays of every vertex in ``phases``, of one checkpoint or savepoint."""
    at_input = {vertex_id: _latest([s.start_delay_ms for s in subtasks]) for vertex_id, subtasks in phases.items()}
    return {vertex_id: _delay(topology, vertex_id, at_input) for vertex_id in phases}


def _delay(topology: Topology, vertex_id: VertexId, at_input: Mapping[VertexId, int | None]) -> VertexDelay:
    own = at_input[vertex_id]
    passed_on = _latest([at_input.get(v) for v in topology.downstream(vertex_id)])
    return VertexDelay(
        vertex_id=vertex_id,
        start_delay_max_ms=own,
        delay_added_ms=None if own is None or passed_on is None else passed_on - own,
        delay_passed_on_ms=passed_on,
        delay_basis=None if passed_on is None else Basis.RECONSTRUCTED,
    )


def _latest(delays_ms: list[int | None]) -> int | None:
    """The latest of them; None if one is missing, since that one could be the latest, or if there is none."""
    known = [d for d in delays_ms if d is not None]
    return max(known) if known and len(known) == len(delays_ms) else None
