"""The fast tier: from a model to the state of a job that has not begun."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from backend.advisor.twin.fast import kinds
from backend.advisor.twin.fast.tables import (
    Channel,
    Checkpoint,
    Event,
    Gate,
    Input,
    Ints,
    Pool,
    Settings,
    Share,
    Sim,
    State,
    Step,
    Subtask,
    table,
)
from backend.advisor.twin.model.model import CheckpointSettings, EdgeModel, JobModel, Partitioning
from backend.domain.advice import Mode
from backend.domain.errors import NotModelledError
from backend.domain.ids import VertexId
from backend.runtime.job.config import RuntimeConfig

_RUNTIME: Final = RuntimeConfig()
"""The reference runtime's settings: what the model does not know is as there, and nothing is written down twice."""
_EVENTS: Final = 1 << 16
_NOISE_MAX: Final = 0.3
"""The noise of uploads that share a store: one upload's time varies more, because it waits for others."""


@dataclass(frozen=True, slots=True)
class FastScale:
    """How a run is made small.

    ``grain`` is the number of steps in which a full buffer is processed. ``warm_up_ms`` is the time before the first
    checkpoint that counts. ``gap_ms`` is the time from the end of a checkpoint to the next trigger; None if checkpoints
    are triggered at the interval of the model. ``between_ms`` is about the time from one trigger to the next.
    """

    grain: int
    warm_up_ms: float
    gap_ms: float | None = None
    between_ms: float = 0.0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many objects of each kind a simulation has, and how many places the rings of a channel have."""

    channels: int = 0
    pools: int = 0
    gates: int = 0
    subtasks: int = 1
    checkpoints: int = 0
    events: int = 0
    places: int = 0
    remote_places: int = 0


def empty(sizes: Sizes) -> Sim:
    """Return tables of these sizes in which nothing is set but what is not zero at the start."""
    sim = Sim(
        settings=table(Settings, 1)[0],
        state=table(State, 1)[0],
        channels=table(Channel, sizes.channels),
        shares=table(Share, sizes.channels),
        inputs=table(Input, sizes.channels),
        pools=table(Pool, sizes.pools),
        gates=table(Gate, sizes.gates),
        subtasks=table(Subtask, sizes.subtasks),
        checkpoints=table(Checkpoint, 1 + sizes.checkpoints),
        events=table(Event, sizes.events),
        steps=table(Step, 2 << (sizes.subtasks - 1).bit_length()),
        queues=np.zeros((sizes.channels, sizes.places)),
        remote_queues=np.zeros((sizes.channels, sizes.remote_places)),
        remote_slots=np.zeros((sizes.channels, sizes.remote_places), np.int64),
    )
    sim.state.last_completion_ms = -math.inf
    sim.subtasks["current"][:] = -1
    sim.steps["at_ms"][:] = math.inf
    return sim


def build(model: JobModel, scale: FastScale, *, seed: int, checkpoints: int) -> Sim:
    """Return the state of a job that has not begun.

    Raises:
        NotModelledError: the model has a forward edge between unequal parallelisms.
    """
    rng = np.random.default_rng(seed)
    network, settings, grain = model.network, model.settings, scale.grain
    edges = [Edge(model, edge) for edge in model.edges]
    apart_ms = max(1.0, min(settings.interval_ms, scale.gap_ms or math.inf))
    sim = empty(
        Sizes(
            channels=sum(len(edge.pairs()) for edge in edges),
            pools=sum(edge.source.parallelism for edge in edges),
            gates=sum(edge.target.parallelism for edge in edges),
            subtasks=sum(vertex.parallelism for vertex in model.vertices),
            checkpoints=4 + checkpoints + settings.max_concurrent + int(scale.warm_up_ms / apart_ms),
            events=_EVENTS,
            places=network.max_buffers_per_channel + _RUNTIME.max_overdraft + 16,
            remote_places=network.exclusive_buffers_per_channel + network.floating_buffers_per_gate + 8,
        )
    )
    sim.state.random = int(rng.integers(1, 2**32 - 1))
    _set_settings(model, sim, scale.gap_ms)
    first_of = _tasks(model, sim, grain, rng)
    _pools(model, edges, sim, first_of, grain, rng)
    _channels(model, edges, sim, first_of, grain, rng)
    _gates(model, edges, sim)
    _begin(model, sim, rng)
    return sim


def _begin(model: JobModel, sim: Sim, rng: np.random.Generator) -> None:
    """Add the first events: a step of each subtask, callbacks, debloating, and the first checkpoint."""
    from backend.advisor.twin.fast.events import push, schedule

    for s in range(len(sim.subtasks)):
        schedule(sim, s, float(rng.uniform(0, 1)))
    s = 0
    for vertex in model.vertices:
        if vertex.callback_period_ms:
            begins = float(rng.uniform(0, vertex.callback_period_ms))
            for i in range(vertex.parallelism):
                push(sim, begins, kinds.CALLBACK, s + i, 0)
        s += vertex.parallelism
    if sim.settings.debloat_target_ms > 0:
        push(sim, float(sim.settings.debloat_period_ms), kinds.DEBLOAT, 0, 0)
    pause_ms, interval_ms = float(sim.settings.min_pause_ms), float(sim.settings.interval_ms)
    push(sim, float(rng.uniform(pause_ms, max(interval_ms, pause_ms))), kinds.TICK, 0, 0)


class Edge:
    """An edge with its channels: the pairs of subtasks that it connects."""

    def __init__(self, model: JobModel, edge: EdgeModel) -> None:
        self.edge = edge
        self.source, self.target = model.vertex(edge.source), model.vertex(edge.target)
        siblings = [other.partitioning for other in model.edges if other.target == edge.target]
        pointwise = (Partitioning.FORWARD, Partitioning.RESCALE)
        overtakes_everywhere = model.engine is None or model.engine.overtakes_everywhere
        self.can_overtake = Partitioning.BROADCAST not in siblings and (
            overtakes_everywhere or not any(p in pointwise for p in siblings)
        )

    def targets(self, i: int) -> list[int]:
        """Return the receivers of a sender, as Flink connects them."""
        n, m = self.source.parallelism, self.target.parallelism
        if self.edge.partitioning is Partitioning.FORWARD:
            if n != m:
                raise NotModelledError(
                    f"it has a forward edge from {n} to {m} subtasks", fix="ask again when the job was read once more"
                )
            return [i]
        if self.edge.partitioning is not Partitioning.RESCALE:
            return list(range(m))
        if n >= m:
            return [i * m // n]
        return [j for j in range(m) if j * n // m == i]

    def pairs(self) -> list[tuple[int, int]]:
        """Return the sender and the receiver of each channel, as indices within their vertices."""
        return [(i, j) for i in range(self.source.parallelism) for j in self.targets(i)]

    def buffers_per_record(self, model: JobModel) -> float:
        """Return how many buffers the output of one input record may begin."""
        record = math.ceil(max(1.0, self.edge.record_bytes) / model.network.segment_bytes)
        copies = self.target.parallelism if self.edge.partitioning is Partitioning.BROADCAST else 1
        return max(1.0, self.source.output_ratio) * record * copies

    def step_bytes(self, model: JobModel, grain: int) -> float:
        """Return how many bytes of the edge are processed at once: whole records, a part of a buffer."""
        record = max(1.0, self.edge.record_bytes)
        return record * max(1, int(model.network.segment_bytes / grain / record))


def _column(values: tuple[float, ...], count: int) -> list[float]:
    return list(values) if values else [0.0] * count


def _tasks(model: JobModel, sim: Sim, grain: int, rng: np.random.Generator) -> dict[VertexId, int]:
    """Set the rows of the subtasks. Return the first row of each vertex."""
    first_of, at = {}, 0
    for vertex in model.vertices:
        first_of[vertex.id] = at
        n = vertex.parallelism
        rows = sim.subtasks[at : at + n]
        rows["service_ms"][:] = [us / 1000 for us in vertex.service_us]
        rows["sync_ms"][:] = _column(vertex.sync_ms, n)
        rows["async_fixed_ms"][:] = _column(vertex.async_fixed_ms, n)
        rows["upload_bytes"][:] = _column(vertex.upload_bytes, n)
        rows["callback_period_ms"][:] = vertex.callback_period_ms or 0.0
        rows["callback_ms"][:] = _column(vertex.callback_ms, n)
        if vertex.source is not None:
            rows["is_source"][:] = True
            sizes = [edge.record_bytes for edge in model.edges if edge.source == vertex.id]
            rows["source_step_records"][:] = max(1, int(model.network.segment_bytes / grain / max([1.0, *sizes])))
            if vertex.source.rate_per_s is not None:
                rows["source_per_ms"][:] = np.array(vertex.input_shares) * vertex.source.rate_per_s / 1000
            rows["emitted_records"][:] = rng.uniform(0, 1, n) * rows["source_step_records"]
            rows["burst_period_ms"][:] = vertex.source.burst_period_ms or 0.0
            rows["burst_ratio"][:] = vertex.source.burst_ratio
            rows["burst_factor"][:] = vertex.source.burst_factor
        at += n
    return first_of


_ROUTING = {
    Partitioning.HASH: kinds.SHARES,
    Partitioning.REBALANCE: kinds.IN_TURN,
    Partitioning.RESCALE: kinds.IN_TURN,
    Partitioning.FORWARD: kinds.IN_TURN,
    Partitioning.BROADCAST: kinds.TO_ALL,
}


def _pools(
    model: JobModel,
    edges: list[Edge],
    sim: Sim,
    first_of: dict[VertexId, int],
    grain: int,
    rng: np.random.Generator,
) -> None:
    network = model.network
    ranges, channel = {}, 0
    for number, edge in enumerate(edges):
        for i in range(edge.source.parallelism):
            ranges[number, i] = (channel, channel + len(edge.targets(i)))
            channel = ranges[number, i][1]
    # The pools of a subtask have consecutive rows.
    order = sorted((first_of[edges[number].source.id] + i, number, i) for number, i in ranges)
    for p, (s, number, i) in enumerate(order):
        edge = edges[number]
        begin, end = ranges[number, i]
        count = end - begin
        buffers = count * network.exclusive_buffers_per_channel + network.floating_buffers_per_gate
        pool, task = sim.pools[p], sim.subtasks[s]
        pool.owner, pool.first, pool.end = s, begin, end
        pool.size = max(count + 1, buffers)
        pool.routing = _ROUTING[edge.edge.partitioning]
        pool.can_overtake = edge.can_overtake
        pool.is_large = edge.buffers_per_record(model) > _RUNTIME.max_overdraft
        pool.next = int(rng.integers(count))
        record, step = max(1.0, edge.edge.record_bytes), edge.step_bytes(model, grain)
        pool.output_bytes = edge.source.output_ratio * record
        pool.step_bytes = step
        pool.drawn_ratio = record / step
        pool.flush_phase_ms = rng.uniform(0, network.flush_ms)
        pool.left_over_bytes = rng.uniform(0, 1) * step
        sim.channels["pool"][begin:end] = p
        if task.pool_end == 0:
            task.pool_first = p
        task.pool_end = p + 1


def _channels(
    model: JobModel,
    edges: list[Edge],
    sim: Sim,
    first_of: dict[VertexId, int],
    grain: int,
    rng: np.random.Generator,
) -> None:
    network = model.network
    machines = _machines(network.is_remote_ratio)
    sim.shares["deficit"][:] = rng.uniform(-0.5, 0.5, len(sim.shares))
    sim.channels["buffer_bytes"][:] = network.segment_bytes
    sim.channels["exclusive_free"][:] = network.exclusive_buffers_per_channel
    sim.channels["required"][:] = network.exclusive_buffers_per_channel
    at = 0
    for edge in edges:
        for i in range(edge.source.parallelism):
            targets = np.array(edge.targets(i))
            end = at + len(targets)
            rows = sim.channels[at:end]
            rows["sender"][:] = first_of[edge.source.id] + i
            rows["receiver"][:] = first_of[edge.target.id] + targets
            rows["is_remote"][:] = i % machines != targets % machines
            rows["record_bytes"][:] = max(1.0, edge.edge.record_bytes)
            rows["step_bytes"][:] = edge.step_bytes(model, grain)
            shares = np.array(edge.target.input_shares)[targets]
            total = shares.sum()
            sim.shares["weight_ratio"][at:end] = shares / total if total > 0 else 1 / len(targets)
            at = end


def _machines(remote_ratio: float) -> int:
    """Return the number of task managers of which this share of the channels connects two."""
    return 1 if remote_ratio <= 0 else max(2, round(1 / max(1 - remote_ratio, 1e-3)))


def _gates(model: JobModel, edges: list[Edge], sim: Sim) -> None:
    channels, gates, subtasks = sim.channels, sim.gates, sim.subtasks
    edge_of = np.repeat(np.arange(len(edges)), [len(edge.pairs()) for edge in edges])
    # By receiver, then by edge, then by sender.
    inputs = np.lexsort((channels["sender"], edge_of, channels["receiver"]))
    sim.inputs["channel"][:] = inputs
    receivers, edge_of = channels["receiver"][inputs], edge_of[inputs]
    begins, ends = _runs(receivers, edge_of)
    gates["owner"][:] = receivers[begins]
    gates["first"][:], gates["end"][:] = begins, ends
    gates["floating_free"][:] = model.network.floating_buffers_per_gate
    gates["buffer_bytes"][:] = model.network.segment_bytes
    gates["announced_bytes"][:] = model.network.segment_bytes
    channels["gate"][inputs] = np.repeat(np.arange(len(gates)), ends - begins)
    begins, ends = _runs(receivers)
    subtasks["input_first"][receivers[begins]], subtasks["input_end"][receivers[begins]] = begins, ends


def _runs(*columns: Ints) -> tuple[Ints, Ints]:
    """Return where runs of equal rows begin and end."""
    is_other = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    changes = np.flatnonzero(is_other) + 1
    return np.concatenate(([0], changes)), np.concatenate((changes, [len(columns[0])]))


def kind_of(settings: CheckpointSettings) -> int:
    """Return the kind of checkpoints that the settings choose."""
    if settings.mode is Mode.ALIGNED:
        return kinds.ALIGNED if settings.is_exactly_once else kinds.AT_LEAST_ONCE
    if settings.inflight_cap_bytes is not None:
        return kinds.CAPPED
    return kinds.ALIGNED_TIMEOUT if settings.aligned_timeout_ms else kinds.UNALIGNED


def _set_settings(model: JobModel, sim: Sim, gap_ms: float | None) -> None:
    network, store, settings, to = model.network, model.store, model.settings, sim.settings
    to.mode = kind_of(settings)
    to.concurrent_max = settings.max_concurrent if to.mode == kinds.ALIGNED else 1
    to.aligned_timeout_ms = settings.aligned_timeout_ms or 0.0
    to.inflight_cap_bytes = math.inf if settings.inflight_cap_bytes is None else settings.inflight_cap_bytes
    to.interval_ms = settings.interval_ms if gap_ms is None else gap_ms
    to.min_pause_ms = settings.min_pause_ms if gap_ms is None else gap_ms
    to.timeout_ms = settings.timeout_ms
    delay = model.trigger_delay_ms
    to.trigger_mid_ms, to.trigger_low_ms, to.trigger_high_ms = delay.value, delay.low, delay.high
    to.segment_bytes = network.segment_bytes
    to.segment_min_bytes = min(_RUNTIME.segment_bytes_min, network.segment_bytes)
    to.flush_ms = network.flush_ms
    to.exclusive_buffers = network.exclusive_buffers_per_channel
    to.channel_buffers_max = network.max_buffers_per_channel
    to.overdraft_buffers = _RUNTIME.max_overdraft
    to.debloat_target_ms = network.debloat_target_ms or 0.0
    to.debloat_period_ms = _RUNTIME.debloat_period_us / 1000
    to.debloat_samples = _RUNTIME.debloat_samples
    to.debloat_threshold_ratio = _RUNTIME.debloat_threshold_percent / 100
    to.hop_ms = _RUNTIME.link_latency_us / 1000
    to.barrier_cost_ms = _RUNTIME.barrier_cost_us / 1000
    to.is_store_shared = store.shared_bytes_per_ms is not None
    to.store_bytes_per_ms = store.shared_bytes_per_ms or store.bytes_per_ms
    to.store_latency_ms = store.latency_ms
    to.store_noise_ratio = store.noise_ratio
    if to.is_store_shared:
        to.store_noise_ratio = min(store.noise_ratio, _NOISE_MAX)
