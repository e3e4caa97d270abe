"""The fast tier: simulates the checkpoints of a model in compiled code, some milliseconds for each setting.

It uses the rules of the reference runtime, but moves a few records at a time and holds no record's content. numba
compiles it at the first use, which takes about 20 s of processor time, or loads what an earlier process compiled.
``prepare`` does this alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Final, cast

import numpy as np

from backend.advisor.twin.fast import compiled_cache
from backend.advisor.twin.fast import fields as f
from backend.advisor.twin.fast.fields import Sim
from backend.advisor.twin.fast.passed import Passed
from backend.advisor.twin.model.model import CheckpointSettings, EdgeModel, JobModel, Partitioning
from backend.advisor.twin.model.outcomes import Simulated, SimulatedCheckpoint, Tier
from backend.advisor.twin.model.rates import Throughput, channel_count, odd_multiple_ms, phases_ms, throughput_of
from backend.domain.advice import Mode
from backend.domain.errors import NotModelledError, TooLargeError
from backend.domain.ids import VertexId
from backend.runtime.job.config import RuntimeConfig

STEPS_WANTED: Final = 100_000
"""The largest number of steps that a run may have before it is made coarser: some tens of milliseconds.

A step that chooses among 16 channels counts as one. One that has fewer channels takes less time, and counts less.
"""
STEPS_MAX: Final = 20_000_000
CHANNELS_QUICK_MAX: Final = 8_192
STEPS_QUICK_MAX: Final = 1_000_000
"""The largest job for a quick answer: about a second for each setting."""
CHECKPOINTS_MIN, CHECKPOINTS_MAX = 3, 8
"""Checkpoints of a held back job differ by a percent or two, which is less than the calibration error."""
_RUNS: Final = 4
"""So many runs of a small job take at most twice as many steps as one run of a large one may have."""
_PHASES: Final = 16
"""In how many phases of its bursts, or of a callback, a job's checkpoints are simulated."""
GRAIN: Final = 8
"""In how many steps a full buffer is processed, unless that makes a step shorter than a record."""
_GRAIN_MIN: Final = 2
_STEP_CHANNELS: Final = 5
"""The time of a step without channels to choose from, as a number of channels that take the same time to look at."""
_FILLS_OF_WARM_UP: Final = 20.0
_FILLS_MIN: Final = 2.0
_FILLS_BETWEEN: Final = 0.25
_GAP_MIN_MS: Final = 300.0
_WARM_UP_MIN_MS: Final = 5_000.0
_WARM_UP_MAX_MS: Final = 600_000.0
_INTERVALS_OF_WARM_UP: Final = 200
_RUNTIME: Final = RuntimeConfig()
"""The reference runtime's settings: what the model does not know is as there, and nothing is written down twice."""
_EVENTS: Final = 1 << 16
_NEVER: Final = 1 << 62
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


class FullQueueError(TooLargeError):
    """A queue of the fast simulation has no place left: the job has more in a channel than the simulation expects."""

    def __init__(self, problem: str) -> None:
        super().__init__("job", problem, field="settings", fix="use the confirmation")


def simulate_fast(
    model: JobModel, *, seed: int = 1, checkpoints: int | None = None, scale: FastScale | None = None
) -> Simulated:
    """Simulate a model until the ``checkpoints`` after its warm-up have ended; of a young job, those around its age.

    Without ``checkpoints``, their number is as large as ``STEPS_WANTED`` allows, within ``CHECKPOINTS_MIN`` and
    ``CHECKPOINTS_MAX``.

    The same arguments give the same result. The rate of the sources is measured from a third of the warm-up to the end,
    because queues fill and run dry slowly. What fills queues behind sources that read as fast as they can is left out.

    Raises:
        NotModelledError: the model has a forward edge between unequal parallelisms.
        FullQueueError: a queue exceeds its bounds.
    """
    try:
        return _simulated(model, seed, checkpoints, scale)
    except f.NoPlaceError as error:
        raise FullQueueError(str(error)) from error


def _simulated(model: JobModel, seed: int, checkpoints: int | None, scale: FastScale | None) -> Simulated:
    run = _compiled()
    if checkpoints is None:
        model, checkpoints = _at_all_phases(model) or (model, _count_of(model))
    scale = scale or scale_of(model, checkpoints)
    state = build(model, scale, seed=seed, checkpoints=checkpoints)
    head, values = state.i[0], state.v[0]
    run(state, scale.warm_up_ms / 3, _NEVER, STEPS_MAX)
    passed = Passed(model, state, [len(_Edge(model, edge).pairs()) for edge in model.edges])
    since_ms, records = float(values[f.NOW]), passed.records()
    run(state, scale.warm_up_ms, _NEVER, STEPS_MAX)
    if model.age_ms is not None and scale.warm_up_ms >= model.age_ms:
        # What is queued grows in a young job, so the checkpoints before and after its age count alike.
        first = max(int(head[f.END_GATE]), int(head[f.TAKEN]) + 1 - checkpoints // 2)
    else:
        run(state, math.inf, int(head[f.ENDED]) + 1, STEPS_MAX)
        first = int(head[f.TAKEN]) + 1
    wanted = range(first, first + checkpoints)
    while head[f.STEPS] < STEPS_MAX and not (state.i[wanted, f.STATUS] != f.PENDING).all():
        run(state, math.inf, int(head[f.ENDED]) + 1, STEPS_MAX)
    elapsed_ms = float(values[f.NOW]) - since_ms
    per_ms = state.v[head[f.FIRST_TASK] : head[f.END_TASK], f.SOURCE_RATE].sum()
    upload = float(state.v[head[f.FIRST_TASK] : head[f.END_TASK], f.UPLOAD].sum())
    return Simulated(
        tier=Tier.FAST,
        seed=seed,
        checkpoints=tuple(
            _checkpoint(state, k, number, upload)
            for number, k in enumerate(wanted, start=1)
            if state.i[k, f.STATUS] != f.PENDING
        ),
        records_per_s=1000 * float(per_ms + (passed.records() - records) / elapsed_ms) if elapsed_ms > 0 else 0.0,
        notes=scale.notes,
    )


def prepare() -> None:
    """Compile the simulation, or load it, so that the next simulation starts at once.

    Call it from a thread or a process that may be busy for half a minute, and not from an event loop.
    """
    columns = f.SLOTS + f.QUEUE
    nothing = Sim(
        i=np.zeros((1, columns), np.int64),
        v=np.zeros((1, columns)),
        e=np.zeros((1, 5)),
        s=np.full((2, 3), math.inf),
        w=np.zeros((1, 2)),
    )
    _compiled()(nothing, 0.0, 0, 0)


def size_problem(model: JobModel) -> str | None:
    """Return why a model is too large for a quick answer; None if it is not."""
    channels = sum(math.prod(channel_count(model, edge)) for edge in model.edges)
    if channels > CHANNELS_QUICK_MAX:
        return f"it has {channels} channels, and the fast simulation takes {CHANNELS_QUICK_MAX}"
    steps = steps_of(model)
    if steps > STEPS_QUICK_MAX:
        most = f"{STEPS_QUICK_MAX / 1e6:g} million is the most"
        return f"its fast simulation takes about {steps / 1e6:.2g} million steps, and {most}"
    return None


def steps_of(model: JobModel) -> float:
    """Return about how many steps the simulation of a model takes, if it takes more than ``STEPS_WANTED``."""
    model, count = _at_all_phases(model) or (model, CHECKPOINTS_MIN)
    scale = scale_of(model, count)
    return _steps_per_ms(model, throughput_of(model), scale.grain) * (scale.warm_up_ms + count * scale.between_ms)


def _compiled() -> Callable[[Sim, float, int, int], None]:
    _choose_cache()
    from backend.advisor.twin.fast.loop import run

    return cast(Callable[[Sim, float, int, int], None], run)


@cache
def _choose_cache() -> None:
    compiled_cache.choose()


def scale_of(model: JobModel, checkpoints: int) -> FastScale:
    """Return how to simulate so many checkpoints in at most about ``STEPS_WANTED`` steps.

    Channels fill and run dry slowly, so the warm-up is as long as the job has run, or many times longer than the queues
    take to fill. If there are too many steps, the warm-up is made shorter first. Then less time is simulated between
    two checkpoints if nothing in the job has a period, but always enough to fill the queues again.
    """
    flow, settings = throughput_of(model), model.settings
    fill_ms = flow.queued_bytes_max / flow.bytes_per_ms if flow.bytes_per_ms > 0 else 0.0
    periods = [v.callback_period_ms or 0.0 for v in model.vertices]
    periods += [v.source.burst_period_ms or 0.0 for v in model.vertices if v.source is not None]
    least_ms = max(_WARM_UP_MIN_MS, _FILLS_OF_WARM_UP * fill_ms, 2 * max(periods))
    warm_up_ms = least_ms
    if model.age_ms is not None:
        longest_ms = min(_WARM_UP_MAX_MS, _INTERVALS_OF_WARM_UP * settings.interval_ms)
        warm_up_ms = max(min(model.age_ms, max(longest_ms, least_ms)), _WARM_UP_MIN_MS)
        least_ms = min(least_ms, warm_up_ms)
    uploads, store = [size for v in model.vertices for size in v.upload_bytes], model.store
    if store.shared_bytes_per_ms is None:
        upload_ms = max(uploads, default=0.0) / max(store.bytes_per_ms, 1e-9)
    else:
        upload_ms = sum(uploads) / max(store.shared_bytes_per_ms, 1e-9)
    own_ms = upload_ms + store.latency_ms + max(max(v.async_fixed_ms, default=0.0) for v in model.vertices)
    notes: tuple[str, ...] = ()
    between_ms, gap_ms = settings.interval_ms, None
    wanted_ms = max(_GAP_MIN_MS, _FILLS_BETWEEN * fill_ms, settings.min_pause_ms)
    grain = GRAIN

    def steps() -> float:
        return _steps_per_ms(model, flow, grain) * (warm_up_ms + checkpoints * between_ms)

    shortest_ms = fill_ms + own_ms + wanted_ms
    can_hurry = not any(periods) and shortest_ms < settings.interval_ms and settings.max_concurrent == 1
    if steps() > STEPS_WANTED:
        room_ms = STEPS_WANTED / _steps_per_ms(model, flow, grain) - checkpoints * between_ms
        warm_up_ms = min(warm_up_ms, max(least_ms, room_ms))
    if can_hurry and steps() > STEPS_WANTED:
        room_ms = STEPS_WANTED / _steps_per_ms(model, flow, grain) - warm_up_ms
        between_ms = min(settings.interval_ms, max(shortest_ms, room_ms / checkpoints))
        gap_ms = between_ms - fill_ms - own_ms
        notes = (f"checkpoints are simulated {gap_ms / 1000:.3g} s after each other, when the queues are full again",)
    while grain > _GRAIN_MIN and steps() > STEPS_WANTED:
        grain //= 2
    if steps() > STEPS_WANTED:
        warm_up_ms = max(warm_up_ms * STEPS_WANTED / steps(), _FILLS_MIN * fill_ms, 2 * max(periods), 1000.0)
    return FastScale(grain, warm_up_ms, gap_ms, between_ms, notes)


def seeds_within(model: JobModel) -> tuple[int, ...]:
    """Return the seeds of the runs for one answer: several for a small job, otherwise one.

    What is queued for each subtask depends on which records came before, and changes slowly: all checkpoints of one run
    persist about equally much, and those of another run more or less. So one run understates the spread.
    """
    model, count = _at_all_phases(model) or (model, _count_of(model))
    scale = scale_of(model, count)
    steps = _steps_per_ms(model, throughput_of(model), scale.grain) * (scale.warm_up_ms + count * scale.between_ms)
    return tuple(range(1, 1 + (_RUNS if steps <= STEPS_WANTED / 2 else 1)))


def _count_of(model: JobModel) -> int:
    per_ms = _steps_per_ms(model, throughput_of(model), _GRAIN_MIN)

    def steps(count: int) -> float:
        scale = scale_of(model, count)
        return per_ms * (scale.warm_up_ms + count * scale.between_ms)

    fitting = (n for n in range(CHECKPOINTS_MAX, CHECKPOINTS_MIN, -1) if steps(n) <= STEPS_WANTED)
    return next(fitting, CHECKPOINTS_MIN)


def _at_all_phases(model: JobModel) -> tuple[JobModel, int] | None:
    """Return the model with an interval at which its checkpoints meet all phases of a period, and their number.

    An interval of less than two phases stays as it is: its checkpoints meet phases that close to each other anyway, in
    one period or two. Longer ones become the next odd multiple of a phase.

    None if the model has neither bursts nor a callback.
    """
    apart_ms = phases_ms(model, phases=_PHASES)
    if apart_ms is None:
        return None
    interval_ms = model.settings.interval_ms
    if interval_ms < 2 * apart_ms:
        rounds = 1 if interval_ms < apart_ms else 2
        return model, round(rounds * _PHASES * apart_ms / max(1.0, interval_ms))
    return replace(model, settings=replace(model.settings, interval_ms=odd_multiple_ms(interval_ms, apart_ms))), _PHASES


def _steps_per_ms(model: JobModel, flow: Throughput, grain: int) -> float:
    total = 0.0
    for vertex in model.vertices:
        sizes = [e.record_bytes for e in model.edges if vertex.id in (e.source, e.target)]
        at_once = max(1, int(model.network.segment_bytes / grain / max([1.0, *sizes])))
        channels = max((channel_count(model, e)[1] for e in model.edges if e.source == vertex.id), default=0)
        total += flow.records_per_s[vertex.id] / 1000 / at_once * (_STEP_CHANNELS + channels) / (_STEP_CHANNELS + 16)
    return total


def _checkpoint(state: Sim, k: int, number: int, upload_bytes: float) -> SimulatedCheckpoint:
    row = state.v[k]
    persisted = float(row[f.IN_FLIGHT])
    return SimulatedCheckpoint(
        checkpoint_id=number,
        triggered_ms=float(row[f.TRIGGERED]),
        duration_ms=float(row[f.DURATION]),
        is_expired=bool(state.i[k, f.STATUS] == f.EXPIRED),
        persisted_bytes=persisted,
        checkpointed_bytes=upload_bytes + persisted,
        travel_ms=float(row[f.TRAVEL]),
        alignment_ms=float(row[f.ALIGNMENT]),
        sync_ms=float(row[f.PAUSE]),
    )


# --- from a model to arrays -------------------------------------------------------------------------------------------


def build(model: JobModel, scale: FastScale, *, seed: int, checkpoints: int) -> Sim:
    """Return the state of a job that has not begun.

    Raises:
        NotModelledError: the model has a forward edge between unequal parallelisms.
    """
    rng = np.random.default_rng(seed)
    network, settings, grain = model.network, model.settings, scale.grain
    edges = [_Edge(model, edge) for edge in model.edges]
    channels = sum(len(edge.pairs()) for edge in edges)
    apart_ms = max(1.0, min(settings.interval_ms, scale.gap_ms or math.inf))
    taken_max = 4 + checkpoints + settings.max_concurrent + int(scale.warm_up_ms / apart_ms)
    room = network.max_buffers_per_channel + _RUNTIME.max_overdraft + 16
    remote_room = network.exclusive_buffers_per_channel + network.floating_buffers_per_gate + 8
    tasks = sum(vertex.parallelism for vertex in model.vertices)
    pools = sum(edge.source.parallelism for edge in edges)
    gates = sum(edge.target.parallelism for edge in edges)
    first_task = 1 + channels
    first_pool = first_task + tasks
    first_gate = first_pool + pools
    first_checkpoint = first_gate + gates
    rows = first_checkpoint + taken_max
    state = Sim(
        i=np.zeros((rows, f.SLOTS + remote_room), np.int64),
        v=np.zeros((rows, f.QUEUE + room + remote_room)),
        e=np.zeros((_EVENTS, 5)),
        s=np.full((2 << (tasks - 1).bit_length(), 3), math.inf),
        w=np.zeros((first_task, 2)),
    )
    head = state.i[0]
    head[[f.ROOM, f.REMOTE_ROOM, f.REMOTE_AT]] = room, remote_room, f.QUEUE + room
    head[[f.END_CHANNEL, f.FIRST_TASK, f.END_TASK]] = first_task, first_task, first_pool
    head[[f.FIRST_GATE, f.END_GATE, f.TAKEN]] = first_gate, first_checkpoint, first_checkpoint - 1
    head[f.RANDOM] = int(rng.integers(1, 2**32 - 1))
    _set_settings(model, state, scale.gap_ms)
    first_of = _tasks(model, state, first_task, grain, rng)
    _pools(model, edges, state, first_of, first_pool, grain, rng)
    _channels(model, edges, state, first_of, grain, rng)
    _gates(model, edges, state, first_gate)
    _begin(model, state, rng)
    return state


def _begin(model: JobModel, state: Sim, rng: np.random.Generator) -> None:
    """Add the first events: a step of each subtask, callbacks, debloating, and the first checkpoint."""
    from backend.advisor.twin.fast.events import push, schedule

    for s in range(state.i[0, f.FIRST_TASK], state.i[0, f.END_TASK]):
        schedule(state, s, float(rng.uniform(0, 1)))
    s = int(state.i[0, f.FIRST_TASK])
    for vertex in model.vertices:
        if vertex.callback_period_ms:
            begins = float(rng.uniform(0, vertex.callback_period_ms))
            for i in range(vertex.parallelism):
                push(state, begins, f.CALLBACK, s + i, 0)
        s += vertex.parallelism
    if state.v[0, f.DEBLOAT_TARGET] > 0:
        push(state, float(state.v[0, f.DEBLOAT_PERIOD]), f.DEBLOAT, 0, 0)
    pause_ms, interval_ms = float(state.v[0, f.MIN_PAUSE]), float(state.v[0, f.INTERVAL])
    push(state, float(rng.uniform(pause_ms, max(interval_ms, pause_ms))), f.TICK, 0, 0)


class _Edge:
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


def _tasks(model: JobModel, state: Sim, first: int, grain: int, rng: np.random.Generator) -> dict[VertexId, int]:
    """Set the rows of the subtasks. Return the first row of each vertex."""
    first_of, at = {}, first
    for vertex in model.vertices:
        first_of[vertex.id] = at
        n = vertex.parallelism
        whole, rows = state.i[at : at + n], state.v[at : at + n]
        whole[:, f.CURRENT] = -1
        rows[:, f.SERVICE] = [us / 1000 for us in vertex.service_us]
        rows[:, f.SYNC] = _column(vertex.sync_ms, n)
        rows[:, f.ASYNC_FIXED] = _column(vertex.async_fixed_ms, n)
        rows[:, f.UPLOAD] = _column(vertex.upload_bytes, n)
        rows[:, f.CALLBACK_PERIOD] = vertex.callback_period_ms or 0.0
        rows[:, f.CALLBACK_TIME] = _column(vertex.callback_ms, n)
        if vertex.source is not None:
            whole[:, f.SOURCE] = 1
            sizes = [edge.record_bytes for edge in model.edges if edge.source == vertex.id]
            rows[:, f.SOURCE_STEP] = max(1, int(model.network.segment_bytes / grain / max([1.0, *sizes])))
            if vertex.source.rate_per_s is not None:
                rows[:, f.SOURCE_RATE] = np.array(vertex.input_shares) * vertex.source.rate_per_s / 1000
            rows[:, f.EMITTED] = rng.uniform(0, 1, n) * rows[:, f.SOURCE_STEP]
            rows[:, f.BURST_PERIOD] = vertex.source.burst_period_ms or 0.0
            rows[:, f.BURST_RATIO] = vertex.source.burst_ratio
            rows[:, f.BURST_FACTOR] = vertex.source.burst_factor
        at += n
    return first_of


_ROUTING = {
    Partitioning.HASH: f.SHARES,
    Partitioning.REBALANCE: f.IN_TURN,
    Partitioning.RESCALE: f.IN_TURN,
    Partitioning.FORWARD: f.IN_TURN,
    Partitioning.BROADCAST: f.TO_ALL,
}


def _pools(
    model: JobModel,
    edges: list[_Edge],
    state: Sim,
    first_of: dict[VertexId, int],
    first: int,
    grain: int,
    rng: np.random.Generator,
) -> None:
    network = model.network
    ranges, channel = {}, 1
    for number, edge in enumerate(edges):
        for i in range(edge.source.parallelism):
            ranges[number, i] = (channel, channel + len(edge.targets(i)))
            channel = ranges[number, i][1]
    # The pools of a subtask have consecutive rows.
    order = sorted((first_of[edges[number].source.id] + i, number, i) for number, i in ranges)
    for p, (s, number, i) in enumerate(order, start=first):
        edge = edges[number]
        begin, end = ranges[number, i]
        count = end - begin
        buffers = count * network.exclusive_buffers_per_channel + network.floating_buffers_per_gate
        whole, row = state.i[p], state.v[p]
        whole[[f.OWNER, f.FIRST, f.END, f.SIZE]] = s, begin, end, max(count + 1, buffers)
        whole[f.ROUTING] = _ROUTING[edge.edge.partitioning]
        whole[f.CAN_OVERTAKE] = edge.can_overtake
        whole[f.IS_LARGE] = edge.buffers_per_record(model) > _RUNTIME.max_overdraft
        whole[f.NEXT] = int(rng.integers(count))
        record, step = max(1.0, edge.edge.record_bytes), edge.step_bytes(model, grain)
        row[f.OUTPUT] = edge.source.output_ratio * record
        row[f.STEP_OUT] = step
        row[f.CHANCE] = record / step
        row[f.PHASE] = rng.uniform(0, network.flush_ms)
        row[f.LEFT_OVER] = rng.uniform(0, 1) * step
        state.i[begin:end, f.POOL] = p
        if state.i[s, f.POOL_END] == 0:
            state.i[s, f.POOL_FIRST] = p
        state.i[s, f.POOL_END] = p + 1


def _channels(
    model: JobModel,
    edges: list[_Edge],
    state: Sim,
    first_of: dict[VertexId, int],
    grain: int,
    rng: np.random.Generator,
) -> None:
    network = model.network
    machines = _machines(network.is_remote_ratio)
    end = state.i[0, f.END_CHANNEL]
    state.w[1:end, f.DEFICIT] = rng.uniform(-0.5, 0.5, end - 1)
    state.v[1:end, f.BUFFER] = network.segment_bytes
    state.i[1:end, f.EXCLUSIVE_FREE] = network.exclusive_buffers_per_channel
    state.i[1:end, f.REQUIRED] = network.exclusive_buffers_per_channel
    at = 1
    for edge in edges:
        for i in range(edge.source.parallelism):
            targets = np.array(edge.targets(i))
            whole, rows = state.i[at : at + len(targets)], state.v[at : at + len(targets)]
            whole[:, f.SENDER] = first_of[edge.source.id] + i
            whole[:, f.RECEIVER] = first_of[edge.target.id] + targets
            whole[:, f.REMOTE] = i % machines != targets % machines
            shares = np.array(edge.target.input_shares)[targets]
            state.w[at : at + len(targets), f.WEIGHT] = shares / shares.sum() if shares.sum() > 0 else 1 / len(targets)
            rows[:, f.RECORD] = max(1.0, edge.edge.record_bytes)
            rows[:, f.STEP_BYTES] = edge.step_bytes(model, grain)
            at += len(targets)


def _machines(remote_ratio: float) -> int:
    """Return the number of task managers of which this share of the channels connects two."""
    return 1 if remote_ratio <= 0 else max(2, round(1 / max(1 - remote_ratio, 1e-3)))


def _gates(model: JobModel, edges: list[_Edge], state: Sim, first: int) -> None:
    whole = state.i
    edge_of = np.repeat(np.arange(len(edges)), [len(edge.pairs()) for edge in edges])
    channels = np.arange(1, whole[0, f.END_CHANNEL])
    # By receiver, then by edge, then by sender.
    inputs = channels[np.lexsort((whole[channels, f.SENDER], edge_of, whole[channels, f.RECEIVER]))]
    whole[channels, f.INPUT] = inputs
    receivers, edge_of = whole[inputs, f.RECEIVER], edge_of[inputs - 1]
    begins, ends = _runs(receivers, edge_of)
    gates = np.arange(first, first + len(begins))
    whole[gates, f.OWNER] = receivers[begins]
    whole[gates, f.FIRST], whole[gates, f.END] = begins + 1, ends + 1
    whole[gates, f.FLOATING] = model.network.floating_buffers_per_gate
    state.v[first : first + len(begins), f.BUFFER_SIZE] = model.network.segment_bytes
    state.v[first : first + len(begins), f.ANNOUNCED] = model.network.segment_bytes
    whole[inputs, f.GATE] = np.repeat(gates, ends - begins)
    begins, ends = _runs(receivers)
    whole[receivers[begins], f.INPUT_FIRST], whole[receivers[begins], f.INPUT_END] = begins + 1, ends + 1


def _runs(*columns: f.Ints) -> tuple[f.Ints, f.Ints]:
    """Return where runs of equal rows begin and end."""
    is_other = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    changes = np.flatnonzero(is_other) + 1
    return np.concatenate(([0], changes)), np.concatenate((changes, [len(columns[0])]))


def kind_of(settings: CheckpointSettings) -> int:
    """Return the kind of checkpoints that the settings choose."""
    if settings.mode is Mode.ALIGNED:
        return f.ALIGNED if settings.is_exactly_once else f.AT_LEAST_ONCE
    if settings.inflight_cap_bytes is not None:
        return f.CAPPED
    return f.ALIGNED_TIMEOUT if settings.aligned_timeout_ms else f.UNALIGNED


def _set_settings(model: JobModel, state: Sim, gap_ms: float | None) -> None:
    network, store, settings = model.network, model.store, model.settings
    whole, row = state.i[0], state.v[0]
    kind = kind_of(settings)
    whole[f.MODE] = kind
    whole[f.CONCURRENT] = settings.max_concurrent if kind == f.ALIGNED else 1
    whole[f.EXCLUSIVE] = network.exclusive_buffers_per_channel
    whole[f.BUFFERS_MAX] = network.max_buffers_per_channel
    whole[f.OVERDRAFT] = _RUNTIME.max_overdraft
    row[f.ALIGNED_TIMEOUT_MS] = settings.aligned_timeout_ms or 0.0
    row[f.CAP] = math.inf if settings.inflight_cap_bytes is None else settings.inflight_cap_bytes
    row[f.INTERVAL] = settings.interval_ms if gap_ms is None else gap_ms
    row[f.MIN_PAUSE] = settings.min_pause_ms if gap_ms is None else gap_ms
    row[f.TIMEOUT] = settings.timeout_ms
    row[f.SEGMENT] = network.segment_bytes
    row[f.FLUSH_EVERY] = network.flush_ms
    row[f.SEGMENT_MIN] = min(_RUNTIME.segment_bytes_min, network.segment_bytes)
    row[f.DEBLOAT_TARGET] = network.debloat_target_ms or 0.0
    row[f.DEBLOAT_PERIOD] = _RUNTIME.debloat_period_us / 1000
    row[f.DEBLOAT_SAMPLES] = _RUNTIME.debloat_samples
    row[f.DEBLOAT_THRESHOLD] = _RUNTIME.debloat_threshold_percent / 100
    delay = model.trigger_delay_ms
    row[[f.TRIGGER_MID, f.TRIGGER_LOW, f.TRIGGER_HIGH]] = delay.value, delay.low, delay.high
    row[f.HOP] = _RUNTIME.link_latency_us / 1000
    row[f.BARRIER_COST] = _RUNTIME.barrier_cost_us / 1000
    whole[f.STORE_SHARED] = store.shared_bytes_per_ms is not None
    row[f.STORE_RATE] = store.shared_bytes_per_ms or store.bytes_per_ms
    row[f.STORE_LATENCY] = store.latency_ms
    row[f.STORE_NOISE] = store.noise_ratio if store.shared_bytes_per_ms is None else min(store.noise_ratio, _NOISE_MAX)
    row[f.LAST_COMPLETION] = -math.inf
