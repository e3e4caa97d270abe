"""From a checkpoint alone, compute the data that each channel of a restarted job must get first (RS-4 to RS-8).

The runtime's own mappings are not used. On a hash edge, the new owner of each key group follows from PT-2. On other
edges, old subtasks are assigned to new ones in turn, or all to the first one (global). If the parallelism is
unchanged, a channel gets back its own data. Otherwise, it gets the in-flight data of each old channel that it now
carries, under the old channel's name. Edges are matched by their ends, because a job that continues elsewhere may have
more of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from backend.runtime.core.elements import VirtualChannel
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job.graph import Graph, Partitioner
from backend.runtime.measure.measures import SubtaskSnapshot
from backend.runtime.network.channel import ChannelKey

Old = VirtualChannel | None
"""The old channel to which bytes belong.

It is None if the parallelism is unchanged, because each channel then gets back its own bytes.
"""


@dataclass(slots=True)
class Restored:
    """The restored data of one channel, by old channel.

    ``inputs`` are the chunks that its receiver restores. ``outputs`` are the bytes that its sender sends first.
    """

    inputs: defaultdict[Old, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    outputs: defaultdict[Old, bytes] = field(default_factory=lambda: defaultdict(bytes))


@dataclass(frozen=True, slots=True)
class InFlight:
    """The channel state of a checkpoint, and the graph at that time: parallelism and edges (source, target)."""

    checkpoint_id: int
    snapshots: tuple[SubtaskSnapshot, ...]
    parallelism: Mapping[str, int]
    edges: tuple[tuple[str, str], ...]

    def edge_now(self, edge: int, graph: Graph) -> int:
        """Return the number in ``graph`` of an edge of the checkpoint."""
        name = self.edges[edge]
        same = [n for n, each in enumerate(graph.edges) if (each.source, each.target) == name]
        return same[self.edges[:edge].count(name)]


def in_flight_of(engine: JobEngine) -> InFlight | None:
    """Return the channel state from which the engine starts now, or None if it starts without a checkpoint."""
    newest, begun = engine.coordinator.newest, engine.restore_point.begun_from
    if newest is not None and (begun is None or newest.record.id >= begun.id):
        before = {vertex.id: vertex.parallelism for vertex in newest.record.graph.vertices}
        edges = tuple((edge.source, edge.target) for edge in newest.record.graph.edges)
        return InFlight(newest.record.id, tuple(newest.snapshots.values()), before, edges)
    if begun is None:
        return None
    subtasks = (snapshot for state in begun.vertices.values() for snapshot in state.subtasks)
    edges = tuple((edge["source"], edge["target"]) for edge in begun.graph["edges"])
    before = {name: state.parallelism for name, state in begun.vertices.items()}
    return InFlight(begun.id, tuple(subtasks), before, edges)


def restored_channels(found: InFlight, graph: Graph) -> dict[ChannelKey, Restored]:
    """Return the restored data for each channel of the graph that is started."""
    channels: defaultdict[ChannelKey, Restored] = defaultdict(Restored)
    for snapshot in found.snapshots:
        for key, chunks in snapshot.channels.inputs.items():
            for channel, old in _places(key, found, graph):
                channels[channel].inputs[old] += map(bytes, chunks)
        for key, chunks in snapshot.channels.outputs.items():
            for channel, old in _places(key, found, graph):
                channels[channel].outputs[old] += b"".join(map(bytes, chunks))
    return dict(channels)


def _places(key: ChannelKey, found: InFlight, graph: Graph) -> Iterable[tuple[ChannelKey, Old]]:
    """Return pairs: a new channel that carries data of the old channel ``key``, and the old channel's name there."""
    number = found.edge_now(key.edge, graph)
    edge = graph.edges[number]
    source, target = graph.vertex(edge.source), graph.vertex(edge.target)
    before = found.parallelism[edge.source], found.parallelism[edge.target]
    if before == (source.parallelism, target.parallelism):
        return [(replace(key, edge=number), None)]
    if edge.partitioner is Partitioner.HASH:
        groups = range(target.effective_max_parallelism)
        own = (g for g in groups if g * before[1] // len(groups) == key.target_subtask)
        receivers = {g * target.parallelism // len(groups) for g in own}
    elif edge.partitioner is Partitioner.GLOBAL:
        receivers = {0}
    else:
        receivers = {key.target_subtask % target.parallelism}
    sender = key.source_subtask % source.parallelism
    old = VirtualChannel(key.source_subtask, key.target_subtask)
    return [(ChannelKey(number, sender, receiver), old) for receiver in sorted(receivers)]
