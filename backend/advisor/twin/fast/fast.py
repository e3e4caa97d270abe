"""The fast tier: simulates the checkpoints of a model in compiled code, some milliseconds for each setting.

It uses the rules of the reference runtime, but moves a few records at a time and holds no record's content. numba
compiles it at the first use, which takes about 20 s of processor time, or loads what an earlier process compiled.
``prepare`` does this alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Final, cast

from backend.advisor.twin.fast import compiled_cache, kinds
from backend.advisor.twin.fast.building import Edge, FastScale, Sizes, build, empty
from backend.advisor.twin.fast.tables import Checkpoint, NoPlaceError, Sim
from backend.advisor.twin.fast.throughput import Passed
from backend.advisor.twin.model.model import JobModel
from backend.advisor.twin.model.outcomes import Simulated, SimulatedCheckpoint, Tier
from backend.advisor.twin.model.rates import Throughput, channel_count, odd_multiple_ms, phases_ms, throughput_of
from backend.domain.errors import TooLargeError

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
_NEVER: Final = 1 << 62


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
    except NoPlaceError as error:
        raise FullQueueError(str(error)) from error


def _simulated(model: JobModel, seed: int, checkpoints: int | None, scale: FastScale | None) -> Simulated:
    run = _compiled()
    if checkpoints is None:
        model, checkpoints = _at_all_phases(model) or (model, _count_of(model))
    scale = scale or scale_of(model, checkpoints)
    sim = build(model, scale, seed=seed, checkpoints=checkpoints)
    run(sim, scale.warm_up_ms / 3, _NEVER, STEPS_MAX)
    passed = Passed(model, sim, [len(Edge(model, edge).pairs()) for edge in model.edges])
    since_ms, records = float(sim.state.now_ms), passed.records()
    run(sim, scale.warm_up_ms, _NEVER, STEPS_MAX)
    if model.age_ms is not None and scale.warm_up_ms >= model.age_ms:
        # What is queued grows in a young job, so the checkpoints before and after its age count alike.
        first = max(1, int(sim.state.last_checkpoint) + 1 - checkpoints // 2)
    else:
        run(sim, math.inf, int(sim.state.ended_count) + 1, STEPS_MAX)
        first = int(sim.state.last_checkpoint) + 1
    wanted = range(first, first + checkpoints)
    while sim.state.step_count < STEPS_MAX and (sim.checkpoints["status"][wanted] == kinds.PENDING).any():
        run(sim, math.inf, int(sim.state.ended_count) + 1, STEPS_MAX)
    elapsed_ms = float(sim.state.now_ms) - since_ms
    per_ms = sim.subtasks["source_per_ms"].sum()
    upload = float(sim.subtasks["upload_bytes"].sum())
    return Simulated(
        tier=Tier.FAST,
        seed=seed,
        checkpoints=tuple(
            _checkpoint(sim.checkpoints[k], number, upload)
            for number, k in enumerate(wanted, start=1)
            if sim.checkpoints[k].status != kinds.PENDING
        ),
        records_per_s=1000 * float(per_ms + (passed.records() - records) / elapsed_ms) if elapsed_ms > 0 else 0.0,
        notes=scale.notes,
    )


def prepare() -> None:
    """Compile the simulation, or load it, so that the next simulation starts at once.

    Call it from a thread or a process that may be busy for half a minute, and not from an event loop.
    """
    _compiled()(empty(Sizes()), 0.0, 0, 0)


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


def _checkpoint(row: Checkpoint, number: int, upload_bytes: float) -> SimulatedCheckpoint:
    persisted = float(row.in_flight_bytes)
    return SimulatedCheckpoint(
        checkpoint_id=number,
        triggered_ms=float(row.triggered_ms),
        duration_ms=float(row.duration_ms),
        is_expired=bool(row.status == kinds.EXPIRED),
        persisted_bytes=persisted,
        checkpointed_bytes=upload_bytes + persisted,
        travel_ms=float(row.travel_ms),
        alignment_ms=float(row.alignment_ms),
        sync_ms=float(row.pause_ms),
    )
