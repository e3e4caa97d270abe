"""Ends a job of the storms at a random moment, and continues it in another run from its newest checkpoint.

The checkpoint passes through the bytes of the file of ``simulate --save-checkpoint``. The second run may have another
parallelism or one more operator, where the checkpoint permits it, and meets the same faults. What both commit must be
what a run without interruption commits: each record once (INV-5), or at least once (INV-6).
"""

from __future__ import annotations

from dataclasses import replace

from backend.domain.errors import PlanError
from backend.runtime.coordinator.rescales import rescaled_graph
from backend.runtime.core.prng import Stream
from backend.runtime.engine.handover import newest_of, save
from backend.runtime.engine.jobfile import JobSpec
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job.graph import EdgeSpec, Partitioner, ordered
from backend.runtime.operators.storage import OutsideState
from backend.runtime.snapshot.saved import RestoreOptions, SavedCheckpoint
from backend.runtime.snapshot.saved_file import read_saved, write_saved
from tests.support.inside_jobs import take_over
from tests.support.invariants import InvariantError
from tests.support.runtime_jobs import exactly_once_violations

_MOST_US = 60_000_000


def run_continued(spec: JobSpec, *, records: int, is_exact: bool, draws: Stream) -> bool:
    """Run a job in two parts, and return whether there was a checkpoint to continue from.

    Raises:
        InvariantError: a record is missing or, if ``is_exact``, committed twice.
    """
    first = JobEngine(spec, keeps_rows=True)
    end_us = 80_000 + draws.below(300_000)
    while newest_of(first) is None or first.now_us < end_us:
        if first.ended_at_us is not None or first.now_us > _MOST_US:
            break
        first.run_until(first.now_us + 1_000 + draws.below(20_000))
    newest = newest_of(first)
    if newest is None:
        return False
    saved = read_saved(write_saved(save(first, newest)), "continued")
    second = _second(spec, saved, draws)
    take_over(second.ledger, first.ledger)
    while len({row.origin for row in second.ledger.rows}) < records and second.now_us < _MOST_US:
        second.run_until(second.now_us + 50_000)
    second.run_until(second.now_us + 300_000)
    broken = exactly_once_violations(second.ledger.rows, records)
    if not is_exact:
        broken = [problem for problem in broken if problem.endswith("missing")]
    if broken:
        raise InvariantError("INV-5" if is_exact else "INV-6", f"continued at {first.now_us} us: {broken}")
    return True


def with_another_map(spec: JobSpec, edge_number: int) -> JobSpec:
    """Return the job with one more operator, which passes on the records of the edge with this number."""
    edge, like = spec.graph.edges[edge_number], spec.graph.vertex("map")
    # The job chains nothing, and the new operator has the parallelism of its target, so every partitioner is possible.
    added = replace(like, id="added", name="added", parallelism=spec.graph.vertex(edge.target).parallelism)
    before = EdgeSpec(edge.source, added.id, Partitioner.REBALANCE)
    edges = [each for each in spec.graph.edges if each is not edge]
    changed = ordered([*spec.graph.vertices, added], [*edges, before, replace(edge, source=added.id)])
    return replace(spec, graph=changed)


def _second(spec: JobSpec, saved: SavedCheckpoint, draws: Stream) -> JobEngine:
    """Return a run that continues from the checkpoint, as another job if the seed says so and it is allowed.

    The other job has another parallelism (GR-1) or one more operator (GR-2).
    """
    # The rows of the first run are added to the ledger afterwards, because the file has only their count and hash.
    handover = replace(saved.handover, outside=OutsideState())
    options = RestoreOptions(is_claimed=draws.below(2) == 1)
    wanted = {vertex.id: 1 + draws.below(4) for vertex in spec.graph.vertices if draws.below(2)}
    edge = draws.below(2 * len(spec.graph.edges))
    for changes, is_extended in ((wanted, True), (wanted, False), ({}, False)):
        if is_extended and edge >= len(spec.graph.edges):
            continue
        try:
            changed = replace(spec, graph=rescaled_graph(spec.graph, changes), rescales=())
            if is_extended:
                changed = with_another_map(changed, edge)
            second = JobEngine(changed, keeps_rows=True, restore=saved.stored, options=options, handover=handover)
        except PlanError:
            # The graph of the checkpoint may have been rescaled already, or an edge does not permit the change.
            if not changes and not is_extended:
                raise
        else:
            # With data in flight for changed operators, a user would get the refusal of ``handover.begin``.
            if not second.at_own_risk:
                return second
    raise AssertionError("unreachable")
