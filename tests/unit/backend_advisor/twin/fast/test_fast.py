"""The fast tier: what its rules imply for a job whose queues are full, and its bounds.

Everyday tests run its code in the interpreter on small jobs. The slow ones run the compiled code on larger jobs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import pairwise
from statistics import mean, median
from typing import Any

import pytest

from backend.advisor.twin.fast import fast, kinds
from backend.advisor.twin.fast.building import FastScale, build
from backend.advisor.twin.fast.fast import prepare, scale_of, simulate_fast
from backend.advisor.twin.fast.tables import NoPlaceError
from backend.advisor.twin.model.model import JobModel, NetworkModel, Partitioning, SourceModel, StoreModel
from backend.advisor.twin.model.outcomes import Simulated, Tier
from backend.advisor.twin.model.rates import throughput_of
from backend.advisor.twin.tiers import runtime_tier
from backend.domain.advice import Mode
from backend.domain.errors import NotModelledError
from tests.support.interpreted_fast_tier import interpreted_fast_tier
from tests.support.twin_models import ALIGNED, edge, three_vertices, vertex

UNALIGNED = replace(ALIGNED, mode=Mode.UNALIGNED)


@dataclass(frozen=True)
class Size:
    """How large the jobs of a test are."""

    parallelism: int
    scale: FastScale
    checkpoints: int

    def model(self, **kwargs: Any) -> JobModel:
        return three_vertices(parallelism=self.parallelism, **kwargs)

    def run(self, model: JobModel, *, seed: int = 1, **changes: Any) -> Simulated:
        return simulate_fast(replace(model, **changes), seed=seed, checkpoints=self.checkpoints, scale=self.scale)

    @property
    def rate_per_s(self) -> float:
        """The records that the slow sinks process in a second."""
        return 500.0 * self.parallelism


SMALL = Size(2, FastScale(grain=2, warm_up_ms=4_000.0), 2)
LARGE = Size(4, FastScale(grain=4, warm_up_ms=30_000.0), 6)


@pytest.fixture(scope="module", params=["interpreted", pytest.param("compiled", marks=pytest.mark.slow)])
def size(request: pytest.FixtureRequest) -> Iterator[Size]:
    if request.param == "compiled":
        yield LARGE
        return
    with interpreted_fast_tier():
        yield SMALL


@pytest.mark.slow
def test_compiled_code_does_what_its_source_does():
    def runs() -> list[Simulated]:
        return [
            SMALL.run(SMALL.model(settings=settings), network=network)
            for settings in (
                ALIGNED,
                UNALIGNED,
                replace(UNALIGNED, aligned_timeout_ms=300.0),
                replace(UNALIGNED, inflight_cap_bytes=100_000),
                replace(ALIGNED, is_exactly_once=False),
            )
            for network in (NetworkModel(), NetworkModel(is_remote_ratio=0.5, debloat_target_ms=300.0))
        ]

    compiled = runs()
    with interpreted_fast_tier():
        assert runs() == compiled


def durations(found: Simulated) -> float:
    return median(c.duration_ms for c in found.checkpoints)


def test_the_same_seed_gives_the_same_run_and_another_seed_another(size: Size):
    model = size.model()

    first, again = (size.run(model, seed=3) for _ in range(2))
    other = size.run(model, seed=4)

    assert first == again
    assert first.tier is Tier.FAST
    assert [c.duration_ms for c in other.checkpoints] != [c.duration_ms for c in first.checkpoints]


def test_an_aligned_barrier_waits_behind_full_queues_and_persists_nothing(size: Size):
    found = size.run(size.model())

    flow = throughput_of(size.model())
    full_ms = flow.queued_bytes_max / flow.bytes_per_ms
    assert 0.4 * full_ms < durations(found) < 2 * full_ms
    assert all(c.persisted_bytes == 0 and not c.is_expired for c in found.checkpoints)
    assert all(c.travel_ms <= c.duration_ms and c.alignment_ms <= c.duration_ms for c in found.checkpoints)
    assert found.records_per_s == pytest.approx(size.rate_per_s, rel=0.05)


def test_an_unaligned_barrier_overtakes_what_is_queued_and_persists_it(size: Size):
    found = size.run(size.model(), settings=UNALIGNED)

    most = throughput_of(size.model()).queued_bytes_max
    assert durations(found) < 150
    assert all(0.4 * most < c.persisted_bytes < 1.6 * most for c in found.checkpoints)


def test_an_aligned_timeout_limits_the_travel_and_persists_less(size: Size):
    always = size.run(size.model(), settings=UNALIGNED)
    found = size.run(size.model(), settings=replace(UNALIGNED, aligned_timeout_ms=1000.0))

    assert 1000 < durations(found) < 1200
    assert all(c.persisted_bytes > 0 for c in found.checkpoints)
    persisted = [median(c.persisted_bytes for c in one.checkpoints) for one in (found, always)]
    assert persisted[0] < persisted[1]


def test_a_timeout_that_no_barrier_reaches_keeps_checkpoints_aligned(size: Size):
    calm = size.model(rate_per_s=size.rate_per_s / 4, settings=replace(UNALIGNED, aligned_timeout_ms=2000.0))
    found = size.run(calm)

    assert all(c.persisted_bytes == 0 and c.duration_ms < 500 for c in found.checkpoints)
    assert found.records_per_s == pytest.approx(size.rate_per_s / 4, rel=0.02)


def test_what_a_barrier_overtakes_is_persisted_once(size: Size):
    rate_per_s = size.rate_per_s / 4
    single = replace(size, scale=FastScale(grain=32, warm_up_ms=4_000.0), checkpoints=4)
    found = single.run(single.model(rate_per_s=rate_per_s, settings=UNALIGNED))

    # Writers are flushed every 100 ms, so each of two exchanges holds half of what comes in this time.
    expected = 2 * rate_per_s * 1000 * 0.05
    assert median(c.persisted_bytes for c in found.checkpoints) < 1.6 * expected


def test_a_sender_continues_to_fill_a_flushed_buffer_behind_what_was_read():
    sim = build(three_vertices(parallelism=2), FastScale(grain=32, warm_up_ms=1000.0), seed=1, checkpoints=1)
    with interpreted_fast_tier():
        from backend.advisor.twin.fast.channels import append, finish, take_first

        channel = sim.channels[1]
        append(sim, 1, 5000.0)
        channel.is_flushed = True
        assert take_first(sim, 1) == 5000.0
        assert (channel.buffers_in_use, channel.has_builder, channel.is_flushed) == (1, True, False)
        append(sim, 1, 3000.0)
        assert (channel.buffers_in_use, channel.queued_bytes) == (1, 3000.0)
        append(sim, 1, 32 * 1024 - 8000.0)
        # The buffer is full, although it holds only what was not read.
        assert (channel.queue_length, channel.queued_bytes) == (1, 32 * 1024 - 5000.0)

        append(sim, 1, 1000.0)
        channel.is_flushed = True
        take_first(sim, 1)
        assert not channel.is_part
        take_first(sim, 1)
        assert (channel.is_part, channel.buffers_in_use) == (True, 2)
        # All of the second buffer has been read, so it is free once it ends. The reader frees the first one.
        finish(sim, 1)
        assert (channel.buffers_in_use, channel.queue_length) == (1, 0)


def test_a_channel_whose_barrier_overtook_is_read_after_the_others():
    sim = build(three_vertices(parallelism=4), SMALL.scale, seed=1, checkpoints=1)
    receiver = sim.subtasks[sim.channels[1].receiver]
    first = receiver.input_first
    inputs = [sim.inputs[i].channel for i in range(first, first + 4)]

    def turn() -> list[int]:
        places = range(receiver.ready_head, receiver.ready_head + receiver.ready_count)
        return [sim.inputs[first + place % 4].ready for place in places]

    with interpreted_fast_tier():
        from backend.advisor.twin.fast.channels import on_ready, put_last

        # The ring of those that can be read begins at its third place.
        receiver.ready_head = 2
        for c in inputs[:3]:
            on_ready(sim, c)
        put_last(sim, inputs[0])
        assert turn() == [inputs[1], inputs[2], inputs[0]]
        put_last(sim, inputs[2])
        assert turn() == [inputs[1], inputs[0], inputs[2]]
        # It has nothing to read, so it has no turn.
        put_last(sim, inputs[3])
        assert turn() == [inputs[1], inputs[0], inputs[2]]
        # The other gates of a subtask have turns of their own.
        sim.channels[inputs[0]].gate += 1
        put_last(sim, inputs[1])
        assert turn() == [inputs[2], inputs[0], inputs[1]]


def test_an_overtaking_barrier_ends_the_turn_of_its_channel(monkeypatch: pytest.MonkeyPatch):
    with interpreted_fast_tier():
        fast_loop = import_module("backend.advisor.twin.fast.loop")
        last: list[int] = []
        monkeypatch.setattr(fast_loop, "put_last", lambda _, c: last.append(c))
        SMALL.run(SMALL.model(settings=UNALIGNED))
        unaligned, last[:] = set(last), []
        SMALL.run(SMALL.model(settings=ALIGNED))

    # All eight channels of the two exchanges, in each unaligned checkpoint; none in an aligned one.
    assert unaligned == set(range(8))
    assert last == []


def test_barriers_leave_in_the_order_of_the_outputs_and_arrive_nearly_so():
    def arrivals(seed: int) -> list[float]:
        sim = build(three_vertices(parallelism=16), SMALL.scale, seed=seed, checkpoints=1)
        sim.state.event_count = 0
        snapshot(sim, sim.pools[0].owner, 1, kinds.OVERTAKING)
        events = [sim.events[n] for n in range(sim.state.event_count)]
        found = {e.a: e.at_ms for e in events if e.kind == kinds.PRIORITY}
        return [found[c] for c in sorted(found)]

    with interpreted_fast_tier():
        from backend.advisor.twin.fast.barriers import snapshot

        runs = [arrivals(seed) for seed in range(40)]

    pairs = [a < b for run in runs for n, a in enumerate(run) for b in run[n + 1 :]]
    few = [a < b for run in runs for n, a in enumerate(run[:4]) for b in run[n + 1 : 4]]
    assert all(len(run) == 16 for run in runs)
    # On a running Flink it was 91 % of two of 16 subtasks, and 74 % of two of 4.
    assert sum(pairs) / len(pairs) == pytest.approx(0.91, abs=0.04)
    assert sum(few) / len(few) == pytest.approx(0.74, abs=0.08)


def test_timers_that_are_due_in_the_same_millisecond_run_in_any_order():
    sim = build(three_vertices(), SMALL.scale, seed=1, checkpoints=1)
    sim.checkpoints[1].triggered_ms, sim.settings.aligned_timeout_ms = 5_000.0, 1_000.0

    with interpreted_fast_tier():
        from backend.advisor.twin.fast.channels import switch_time

        due = [switch_time(sim, 1) for _ in range(20)]
        sim.state.now_ms = 7_000.0
        assert switch_time(sim, 1) == 7_000.0
    assert all(6_000.0 <= at <= 6_001.0 for at in due)
    assert due != sorted(due)


@pytest.mark.parametrize("age_ms", [12_000.0, None])
def test_the_checkpoints_of_a_young_job_are_those_around_its_age(age_ms: float | None):
    model = replace(three_vertices(parallelism=2), age_ms=age_ms)
    scale = FastScale(grain=2, warm_up_ms=12_000.0)

    with interpreted_fast_tier():
        triggered = [c.triggered_ms for c in simulate_fast(model, checkpoints=4, scale=scale).checkpoints]

    assert len(triggered) == 4
    assert sum(at < 12_000.0 for at in triggered) == (0 if age_ms is None else 2)


@pytest.mark.parametrize("cap", [0, 200_000, 500_000])
def test_a_cap_bounds_the_in_flight_data_of_every_subtask(size: Size, cap: int):
    free = size.run(size.model(), settings=UNALIGNED)
    found = size.run(size.model(), settings=replace(UNALIGNED, inflight_cap_bytes=cap))

    assert all(c.persisted_bytes <= 3 * size.parallelism * cap for c in found.checkpoints)
    assert all(not c.is_expired for c in found.checkpoints)
    if cap == 500_000 and size.parallelism == 2:
        # The queues of a small job fit the largest cap, so that it changes nothing except when records are read.
        assert durations(found) == pytest.approx(durations(free), abs=5)
    elif cap == 500_000:
        # Those of a larger job nearly fit it. What it changes is less than what chance changes in one run.
        capped = replace(UNALIGNED, inflight_cap_bytes=cap)
        runs = [
            (durations(size.run(size.model(), settings=of, seed=n))) for n in range(1, 8) for of in (UNALIGNED, capped)
        ]
        assert mean(runs[1::2]) == pytest.approx(mean(runs[::2]), abs=5)
    else:
        assert durations(found) > durations(free)


@pytest.mark.parametrize("remote", [0.0, 1.0])
def test_a_cap_that_a_part_of_the_queues_exceeds_does_what_the_runtime_does(remote: float):
    network = NetworkModel(is_remote_ratio=remote)
    longest, smallest = math.inf, 0.0
    for cap in (50_000, 200_000):
        model = replace(SMALL.model(), network=network, settings=replace(UNALIGNED, inflight_cap_bytes=cap))
        with interpreted_fast_tier():
            found = simulate_fast(model, seed=1, checkpoints=6, scale=FastScale(grain=2, warm_up_ms=8_000.0))
        exact = runtime_tier.simulate(model, scale=runtime_tier.Scale(1, 4_000.0, 40_000.0, ()))
        in_flight = [median(c.persisted_bytes for c in one.checkpoints) for one in (found, exact)]

        assert durations(found) == pytest.approx(durations(exact), rel=0.15)
        assert in_flight[0] == pytest.approx(in_flight[1], rel=0.15)
        assert durations(found) < 0.8 * longest
        assert in_flight[0] > 1.5 * smallest
        longest, smallest = durations(found), in_flight[0]


def test_checkpoints_that_reach_the_timeout_expire_and_the_job_goes_on(size: Size):
    found = size.run(size.model(), settings=replace(ALIGNED, timeout_ms=400.0))

    assert [(c.is_expired, c.duration_ms) for c in found.checkpoints] == [
        (True, pytest.approx(400.0))
    ] * size.checkpoints
    assert found.records_per_s == pytest.approx(size.rate_per_s, rel=0.05)


def test_at_least_once_barriers_wait_in_queues_but_block_no_channel(size: Size):
    exactly = size.run(size.model())
    found = size.run(size.model(), settings=replace(ALIGNED, is_exactly_once=False))

    # Data behind the barriers that have arrived is read too, so the data in front of the last barrier drains slowly.
    assert durations(exactly) < durations(found) < 4 * durations(exactly)
    assert all(c.persisted_bytes == 0 for c in found.checkpoints)


def test_two_aligned_checkpoints_may_run_at_the_same_time(size: Size):
    fast = replace(ALIGNED, interval_ms=700.0)
    alone, both = (
        size.run(size.model(), settings=fast),
        size.run(size.model(), settings=replace(fast, max_concurrent=2)),
    )

    def overlaps(found: Simulated) -> bool:
        ends = [c.triggered_ms + c.duration_ms for c in found.checkpoints]
        return any(c.triggered_ms < end - 1 for c, end in zip(found.checkpoints[1:], ends, strict=False))

    assert not overlaps(alone)
    assert overlaps(both)


def test_remote_channels_hold_more_and_obey_their_credits(size: Size):
    near = size.run(size.model())
    far = size.run(size.model(), network=NetworkModel(is_remote_ratio=0.5))
    bare = NetworkModel(is_remote_ratio=0.5, exclusive_buffers_per_channel=0, floating_buffers_per_gate=8)

    assert durations(far) > durations(near)
    for mode in (ALIGNED, UNALIGNED, replace(UNALIGNED, aligned_timeout_ms=500.0)):
        found = size.run(size.model(settings=mode), network=bare)
        assert not any(c.is_expired for c in found.checkpoints)


def test_debloating_keeps_the_queues_to_its_target(size: Size):
    found = size.run(size.model(), network=NetworkModel(debloat_target_ms=300.0))

    assert durations(found) == pytest.approx(600, rel=0.5)


@pytest.mark.parametrize("partitioning", list(Partitioning))
def test_every_partitioning_moves_barriers(size: Size, partitioning: Partitioning):
    model = size.model(rate_per_s=25.0)
    model = replace(model, edges=(edge("source", "map", partitioning), edge("map", "sink", partitioning)))

    for settings in (ALIGNED, UNALIGNED):
        found = size.run(model, settings=settings)
        assert all(not c.is_expired and c.duration_ms < 3000 for c in found.checkpoints)


def test_a_join_reads_all_its_inputs(size: Size):
    model = size.model(rate_per_s=0.15 * size.rate_per_s)
    right = replace(model.vertices[0], id=vertex("right").id)
    model = replace(
        model, vertices=(model.vertices[0], right, *model.vertices[1:]), edges=(*model.edges, edge("right", "sink"))
    )

    assert size.run(model).records_per_s == pytest.approx(0.3 * size.rate_per_s, rel=0.02)


def test_a_long_callback_and_a_sync_part_delay_barriers_that_overtake(size: Size):
    source, middle, sink = size.model().vertices
    storm = replace(sink, callback_period_ms=4000.0, callback_ms=(3500.0,) * size.parallelism)
    slow = replace(middle, sync_ms=(900.0,) + (1.0,) * (size.parallelism - 1))

    held = size.run(size.model(settings=UNALIGNED), vertices=(source, middle, storm))
    paused = size.run(size.model(settings=UNALIGNED), vertices=(source, slow, sink))

    assert max(c.duration_ms for c in held.checkpoints) > 1000
    assert all(c.sync_ms == 900 and c.duration_ms > 900 for c in paused.checkpoints)


@pytest.mark.parametrize("is_shared", [True, False])
def test_uploads_wait_for_each_other_only_if_they_share_the_store(size: Size, is_shared: bool):
    source, middle, sink = size.model(rate_per_s=0.15 * size.rate_per_s).vertices
    large = replace(sink, upload_bytes=(5e6,) * size.parallelism, async_fixed_ms=(40.0,) * size.parallelism)
    store = StoreModel(bytes_per_ms=50_000.0, shared_bytes_per_ms=50_000.0 if is_shared else None)
    model = size.model(rate_per_s=0.15 * size.rate_per_s, settings=UNALIGNED)
    found = size.run(replace(model, store=store), vertices=(source, middle, large))

    writers = size.parallelism if is_shared else 1
    assert writers * 5e6 / 50_000 + 40 < durations(found) < (writers + 0.9) * 5e6 / 50_000 + 40
    assert all(c.checkpointed_bytes >= size.parallelism * 5e6 for c in found.checkpoints)


def test_rounding_does_not_keep_a_barrier_from_the_gap_between_two_records():
    sim = build(three_vertices(), SMALL.scale, seed=1, checkpoints=1)
    task = sim.subtasks[1]
    task.activity = kinds.BUSY
    task.free_at_ms, task.record_ms, task.no_mail_until_ms = 6.0, 2.0, -1.0
    with interpreted_fast_tier():
        from backend.advisor.twin.fast.loop import handled_at

        for now, handled in [(0.0, 0.0), (4.0 + 1e-10, 4.0), (4.0 - 1e-10, 4.0), (3.0, 4.0), (6.5, 6.5)]:
            sim.state.now_ms = now
            assert handled_at(sim, 1) == pytest.approx(handled, abs=1e-8)


def test_only_a_record_that_needs_many_buffers_can_block_a_message(size: Size):
    model = size.model()
    huge = replace(model.edges[0], record_bytes=20.0 * model.network.segment_bytes)
    plain, blocking = (
        build(replace(model, edges=edges), size.scale, seed=1, checkpoints=1)
        for edges in (model.edges, (huge, *model.edges[1:]))
    )

    for sim, expected in ((plain, 0), (blocking, size.parallelism)):
        assert sim.pools["is_large"].sum() == expected


def test_what_is_queued_has_not_been_processed():
    # A short time in which the source sends bursts into the queues: its own count is half of what is processed.
    model = replace(SMALL.model(), settings=replace(UNALIGNED, interval_ms=200.0))
    with interpreted_fast_tier():
        found = simulate_fast(model, checkpoints=1, scale=FastScale(grain=2, warm_up_ms=300.0))

    assert found.records_per_s == pytest.approx(SMALL.rate_per_s, rel=0.1)


@pytest.mark.parametrize("shape", ["join", "join-with-a-rate", "fan-out"])
def test_what_is_queued_in_front_of_a_join_or_behind_a_fan_out_counts_once(shape: str):
    # The sinks can do 1000 records/s of both inputs, or of each copy.
    whole = SMALL.model()
    source, _, sink = whole.vertices
    hashed = replace(whole.edges[0], partitioning=Partitioning.HASH)
    if shape == "fan-out":
        vertices = (source, replace(sink, id="one"), replace(sink, id="other"))
        edges = tuple(replace(hashed, source=source.id, target=v.id) for v in vertices[1:])
    else:
        rate_per_s = 500.0 if shape == "join-with-a-rate" else None
        other = replace(source, id="other", source=SourceModel(rate_per_s=rate_per_s))
        vertices = (source, other, sink)
        edges = tuple(replace(hashed, source=v.id, target=sink.id) for v in vertices[:2])
    model = replace(whole, vertices=vertices, edges=edges, settings=replace(UNALIGNED, interval_ms=200.0))
    with interpreted_fast_tier():
        found = simulate_fast(model, checkpoints=1, scale=FastScale(grain=2, warm_up_ms=300.0))

    assert found.records_per_s == pytest.approx(SMALL.rate_per_s, rel=0.1)


def test_the_usual_size_of_a_run_is_bounded():
    model = three_vertices(settings=replace(ALIGNED, interval_ms=600_000.0))
    small = scale_of(model, 8)
    hundredfold = tuple(replace(v, service_us=tuple(us / 100 for us in v.service_us)) for v in model.vertices)
    large = scale_of(replace(model, vertices=hundredfold), 8)

    assert small.gap_ms is not None
    assert "when the queues are full again" in small.notes[0]
    assert large.grain <= small.grain
    assert large.warm_up_ms < small.warm_up_ms


def test_a_small_job_gets_more_checkpoints_than_a_large_one(monkeypatch: pytest.MonkeyPatch):
    counts = []

    def note(*_: object, checkpoints: int, **__: object) -> None:
        counts.append(checkpoints)
        raise StopIteration

    monkeypatch.setattr(fast, "build", note)
    monkeypatch.setattr(fast, "_compiled", lambda: None)
    model = three_vertices(settings=replace(ALIGNED, interval_ms=600_000.0))
    faster = tuple(replace(v, service_us=tuple(us / 1000 for us in v.service_us)) for v in model.vertices)

    for one in (model, replace(model, vertices=faster)):
        with pytest.raises(StopIteration):
            simulate_fast(one)

    assert counts == [8, 3]


def test_the_checkpoints_of_a_bursty_job_meet_all_phases_of_its_bursts(monkeypatch: pytest.MonkeyPatch):
    met, intervals = [], []

    def note(model: JobModel, *_: object, checkpoints: int, **__: object) -> None:
        met.append({round(n * model.settings.interval_ms / 15_000.0 % 1.0 * 16, 3) % 16 for n in range(checkpoints)})
        intervals.append(model.settings.interval_ms)
        raise StopIteration

    monkeypatch.setattr(fast, "build", note)
    monkeypatch.setattr(fast, "_compiled", lambda: None)
    source = SourceModel(rate_per_s=400.0, burst_period_ms=15_000.0, burst_ratio=0.3, burst_factor=2.0)
    model = three_vertices()
    model = replace(model, vertices=(replace(model.vertices[0], source=source), *model.vertices[1:]))

    for interval_ms in (3000.0, 60_000.0, 250.0, 1000.0, 1700.0):
        with pytest.raises(StopIteration):
            simulate_fast(replace(model, settings=replace(ALIGNED, interval_ms=interval_ms)))

    assert met[:2] == [set(map(float, range(16)))] * 2
    # Short intervals are simulated as they are.
    assert intervals[2:] == [250.0, 1000.0, 1700.0]
    for phases in map(sorted, met[2:]):
        assert max(b - a for a, b in pairwise([*phases, phases[0] + 16])) <= 2


def test_a_forward_edge_between_unequal_parallelisms_is_refused():
    model = three_vertices()
    model = replace(
        model, vertices=(vertex("source", 2, source=model.vertices[0].source), *model.vertices[1:]),
        edges=(edge("source", "map", Partitioning.FORWARD), model.edges[1]),
    )  # fmt: skip

    with pytest.raises(NotModelledError, match="2 to 4"):
        build(model, SMALL.scale, seed=1, checkpoints=1)


def test_a_queue_without_a_place_left_is_an_error_of_its_own(monkeypatch: pytest.MonkeyPatch):
    def full(*_: object) -> None:
        raise NoPlaceError("a queue of its fast simulation is full")

    monkeypatch.setattr(fast, "_compiled", lambda: full)

    with pytest.raises(fast.FullQueueError, match="too large: a queue"):
        simulate_fast(three_vertices())


def test_a_job_with_too_many_channels_or_too_many_steps_is_too_large_for_a_quick_answer():
    model = three_vertices()
    assert fast.size_problem(model) is None

    wide = replace(
        model,
        vertices=tuple(
            vertex(v.id, 100, 5.0, source=v.source) for v in model.vertices
        ),
    )  # fmt: skip
    assert "it has 20000 channels" in (fast.size_problem(wide) or "")
    # An exact rate of a hundred million small records a second.
    busy = replace(
        model,
        vertices=(vertex("source", 4, 0.001, source=SourceModel(rate_per_s=1e8)), *(
            vertex(v.id, 4, 0.001) for v in model.vertices[1:])),
        settings=replace(model.settings, interval_ms=600_000.0, max_concurrent=2),
    )  # fmt: skip
    assert "million steps" in (fast.size_problem(busy) or "")


def test_all_checkpoints_of_a_bursty_job_count_in_its_size():
    model = three_vertices()
    rare = replace(model.settings, interval_ms=120_000.0)
    source = SourceModel(rate_per_s=20_000.0, burst_period_ms=15_000.0, burst_ratio=0.3, burst_factor=2.0)
    steady = replace(
        model, settings=rare, vertices=(vertex("source", 4, 1.0, source=SourceModel(rate_per_s=20_000.0)), *(
            vertex(v.id, 4, 1.0) for v in model.vertices[1:])),
    )  # fmt: skip
    bursty = replace(steady, vertices=(replace(steady.vertices[0], source=source), *steady.vertices[1:]))

    assert fast.size_problem(steady) is None
    assert "million steps" in (fast.size_problem(bursty) or "")


@pytest.mark.slow
def test_preparing_leaves_nothing_to_compile():
    prepare()
    from backend.advisor.twin.fast.loop import run

    before = list(run.signatures)
    SMALL.run(SMALL.model())

    assert len(before) == 1
    assert run.signatures == before
