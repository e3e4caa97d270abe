"""The data that every channel of a restarted job must get first, computed from the checkpoint alone (RS-4 to RS-8).

The runtime's own mappings are not used: the owner of a key group follows from PT-2, and the rest is dealt out in
turn. At an unchanged parallelism, a channel gets back its own data. At another parallelism, it gets the in-flight
data of each old channel that it now carries, under the old channel's name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from backend.runtime.core.elements import VirtualChannel
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job.graph import Graph, Partitioner
from backend.runtime.measure.measures import SubtaskSnapshot
from backend.runtime.network.channel import ChannelKey

Old = VirtualChannel | None
"""The old channel to which bytes belong; None for the channel itself, if the parallelism is unchanged."""


@dataclass(slots=True)
class Restored:
    """For one channel: the chunks that its receiver restores, and the bytes that its sender sends first."""

    inputs: defaultdict[Old, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    outputs: defaultdict[Old, bytes] = field(default_factory=lambda: defaultdict(bytes))


@dataclass(frozen=True, slots=True)
class InFlight:
    """The channel state of a checkpoint, and how many subtasks each vertex had."""

    checkpoint_id: int
    snapshots: tuple[SubtaskSnapshot, ...]
    parallelism: Mapping[str, int]


def in_flight_of(engine: JobEngine) -> InFlight | None:
    """What the engine restores now; None if it starts without a checkpoint."""
    newest, begun = engine.coordinator.newest, engine.restore_point.begun_from
    if newest is not None and (begun is None or newest.record.id >= begun.id):
        before = {vertex.id: vertex.parallelism for vertex in newest.record.graph.vertices}
        return InFlight(newest.record.id, tuple(newest.snapshots.values()), before)
    if begun is None:
        return None
    subtasks = (snapshot for state in begun.vertices.values() for snapshot in state.subtasks)
    return InFlight(begun.id, tuple(subtasks), {name: state.parallelism for name, state in begun.vertices.items()})


def restored_channels(found: InFlight, graph: Graph) -> dict[ChannelKey, Restored]:
    """The restored data by channel of the started graph, whose edges are those of the checkpoint."""
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
    """The channels that now carry an old channel, and its name in each."""
    edge = graph.edges[key.edge]
    source, target = graph.vertex(edge.source), graph.vertex(edge.target)
    before = found.parallelism[edge.source], found.parallelism[edge.target]
    if before == (source.parallelism, target.parallelism):
        return [(key, None)]
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
    return [(ChannelKey(key.edge, sender, receiver), old) for receiver in sorted(receivers)]
