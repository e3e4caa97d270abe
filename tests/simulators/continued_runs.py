"""Ends a job of the storms at a random moment, and continues it in another run from a checkpoint or a savepoint.

The run continues in the way of ``simulate --from``: through the bytes of the file and ``handover.begin``. It may own
the checkpoint (IN-16) and may have another parallelism, one operator more or one less. Whether the checkpoint permits
that is decided here a second time, from the checkpoint alone. The second run meets the same faults. All invariants hold
over both: what both commit is what a run without interruption commits, each record once (INV-5) or at least once
(INV-6), the state has the same counts, no watermark goes back within a run, and no file is left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from backend.domain.errors import PlanError
from backend.runtime.coordinator.rescales import rescaled_graph
from backend.runtime.core.prng import Stream
from backend.runtime.engine.handover import begin, kept_checkpoint, newest_of, save
from backend.runtime.engine.jobfile import JobSpec, SavepointSpec, Stop
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job.graph import EdgeSpec, Graph, Partitioner, ordered
from backend.runtime.measure.measures import Finished
from backend.runtime.measure.requested import RequestedFormat
from backend.runtime.snapshot.metadata import ReadCheckpoint, read_checkpoint
from backend.runtime.snapshot.saved import RestoreOptions, SavedCheckpoint
from backend.runtime.snapshot.saved_file import read_saved, write_saved
from tests.support.invariants import InvariantError, Watch

_MOST_US = 60_000_000
_POINTWISE = (Partitioner.FORWARD, Partitioner.RESCALE, Partitioner.BROADCAST)


class Origin(StrEnum):
    """What the second run begins from."""

    CHECKPOINT = "checkpoint"
    SAVEPOINT = "savepoint"
    STOP = "stop with a savepoint"


class Change(StrEnum):
    """How the second run's job differs from the first one's, apart from its parallelism."""

    NONE = "same graph"
    MORE = "one more operator"
    LESS = "one operator less"


class Continued(NamedTuple):
    """A job that was continued: from what, as what, and which rule refused a change before."""

    origin: Origin
    change: Change
    is_rescaled: bool
    is_unaligned: bool
    """Whether data was in flight in the checkpoint."""
    refused: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Plan:
    change: Change
    edge: int
    """The edge on which the new operator is."""
    parallelism: Mapping[str, int]


def run_continued(
    spec: JobSpec, *, records: int, is_exact: bool, draws: Stream, origin: Origin | None = None
) -> Continued | None:
    """Run a job in two parts, and return how. None if there was no checkpoint to continue from.

    ``origin``: what the second part begins from; None to draw it.

    Raises:
        InvariantError: an invariant does not hold over both parts, or a change was wrongly refused or permitted.
    """
    end_us = 80_000 + draws.below(300_000)
    wanted = [*Origin][draws.below(len(Origin))] if origin is None else origin
    form = [*RequestedFormat][draws.below(len(RequestedFormat))]
    stop = Stop.SUSPEND if wanted is Origin.STOP else None
    asked = () if wanted is Origin.CHECKPOINT else (SavepointSpec(end_us, form, stop),)
    first = Watch(JobEngine(replace(spec, savepoints=asked), keeps_rows=True), records=records, is_exact=is_exact)
    engine = first.engine
    while newest_of(engine) is None or engine.now_us <= end_us or _is_saving(engine):
        if engine.ended_at_us is not None or engine.now_us > _MOST_US:
            break
        first.run_until(engine.now_us + 1_000 + draws.below(20_000))
    saved = _saved(engine)
    if saved is None:
        return None
    engine.cancel()
    read = read_checkpoint(saved.stored)
    begun = Origin.CHECKPOINT if read.savepoint_format is None else wanted
    second, plan, refused = _second(spec, saved, read, draws)
    watch = Watch(second, records=records, is_exact=is_exact)
    watch.take_over(first)
    watch.run_to_the_end(most_us=second.began_at_us + _MOST_US)
    before = {vertex["id"]: vertex["parallelism"] for vertex in read.graph["vertices"]}
    now = {vertex.id: vertex.parallelism for vertex in second.spec.graph.vertices}
    is_rescaled = any(now.get(vertex, count) != count for vertex, count in before.items())
    return Continued(begun, plan.change, is_rescaled, read.has_channel_state, refused)


def _is_saving(engine: JobEngine) -> bool:
    return any(each.ended_at_us is None for each in engine.coordinator.triggering.savepoint_requests.values())


def _saved(engine: JobEngine) -> SavedCheckpoint | None:
    """Return the newest checkpoint or savepoint, as it comes out of the bytes of its file; None if there is none."""
    kept = newest_of(engine)
    if kept is None:
        return None
    _expect_refusal_of_older_ones(engine)
    kept = kept_checkpoint(engine, kept.record.id)
    return read_saved(write_saved(save(engine, kept)), "continued")


def _expect_refusal_of_older_ones(engine: JobEngine) -> None:
    """Check that nobody can begin behind a checkpoint that has committed output since (CO-8)."""
    newest = engine.coordinator.newest
    for kept in (*engine.coordinator.completed, *engine.coordinator.savepoints.values()):
        is_older = newest is not None and kept.record.id < newest.record.id
        _check("CO-8" if is_older else None, lambda: kept_checkpoint(engine, kept.record.id))  # noqa: B023


def _check(rule: str | None, begins: Callable[[], object]) -> bool:
    """Call ``begins``, and return whether it was refused. ``rule`` must refuse it; None if nothing may.

    Raises:
        InvariantError: it is not as expected.
    """
    try:
        begins()
    except PlanError as error:
        if error.rule != rule:
            raise InvariantError(error.rule, f"refused, but {rule or 'no refusal'} was expected: {error}") from error
        return True
    if rule is not None:
        raise InvariantError(rule, "it was permitted")
    return False


def _second(
    spec: JobSpec, saved: SavedCheckpoint, read: ReadCheckpoint, draws: Stream
) -> tuple[JobEngine, _Plan, tuple[str, ...]]:
    """Return a run that continues from the checkpoint, its plan, and the rules that refused other plans before."""
    options = RestoreOptions(is_claimed=draws.below(2) == 1)
    wanted = {vertex.id: 1 + draws.below(4) for vertex in spec.graph.vertices if draws.below(2)}
    edge, change = draws.below(len(spec.graph.edges)), [*Change][draws.below(len(Change))]
    refused: list[str] = []
    for plan in (_Plan(change, edge, wanted), _Plan(Change.NONE, edge, wanted), _Plan(Change.NONE, edge, {})):
        changed = _changed(spec, plan)
        rule = refusal_of(read, changed.graph)
        begun: list[JobEngine] = []
        if not _check(rule, lambda: begun.append(begin(changed, saved, options, keeps_rows=True))):  # noqa: B023
            return begun[0], plan, tuple(refused)
        refused.append(str(rule))
    raise AssertionError("unreachable")


def _changed(spec: JobSpec, plan: _Plan) -> JobSpec:
    changed = replace(spec, graph=rescaled_graph(spec.graph, plan.parallelism), rescales=())
    if plan.change is Change.MORE:
        return with_another_map(changed, plan.edge)
    return without_the_map(changed) if plan.change is Change.LESS else changed


def with_another_map(spec: JobSpec, edge_number: int) -> JobSpec:
    """Return the job with one more operator, which passes on the records of the edge with this number."""
    edge, like = spec.graph.edges[edge_number], spec.graph.vertex("map")
    # The job chains nothing, and the new operator has the parallelism of its target, so every partitioner is possible.
    added = replace(like, id="added", name="added", parallelism=spec.graph.vertex(edge.target).parallelism)
    before = EdgeSpec(edge.source, added.id, Partitioner.REBALANCE)
    edges = [each for each in spec.graph.edges if each is not edge]
    changed = ordered([*spec.graph.vertices, added], [*edges, before, replace(edge, source=added.id)])
    return replace(spec, graph=changed)


def without_the_map(spec: JobSpec) -> JobSpec:
    """Return the job without its map, which has no state: its sources send to the keyed stage."""
    graph = spec.graph
    edges = [replace(edge, source="source") for edge in graph.edges if edge.source == "map"]
    return replace(spec, graph=ordered([v for v in graph.vertices if v.id != "map"], edges))


def refusal_of(read: ReadCheckpoint, graph: Graph) -> str | None:
    """Return the rule that forbids a job of this graph to begin from the checkpoint; None if it is permitted.

    This repeats the specification for the jobs of this module, and uses nothing of the runtime's own decision.
    """
    subtasks = [s for state in read.vertices.values() for s in state.subtasks]
    sides = [side for s in subtasks for side in (s.channels.inputs, s.channels.outputs)]
    in_flight = {key.edge for side in sides for key, chunks in side.items() if sum(map(len, chunks))}
    now = {(e.source, e.target): e for e in graph.edges}
    parallelism = {vertex.id: vertex.parallelism for vertex in graph.vertices}
    for number in in_flight:
        edge = read.graph["edges"][number]
        same = now.get((edge["source"], edge["target"]))
        if same is None or same.partitioner.value != edge["partitioner"]:
            return "GR-2"
    for vertex, state in read.vertices.items():
        has_finished = any(s.finished in (Finished.TASK, Finished.RESTORED) for s in state.subtasks)
        new = [source for source, target in now if target == vertex and source not in read.vertices]
        if has_finished and new:
            return "FN-18"
    for number in in_flight:
        edge = read.graph["edges"][number]
        ends = [edge["source"], edge["target"]]
        is_changed = any(read.vertices[end].parallelism != parallelism[end] for end in ends)
        if is_changed and Partitioner(edge["partitioner"]) in _POINTWISE:
            return "RS-11"
    return None
