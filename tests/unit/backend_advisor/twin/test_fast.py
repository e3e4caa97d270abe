"""The fast tier: what its rules imply for a job whose queues are full, and its bounds."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import pytest

from backend.advisor.twin.fast import FastScale, scale_of, simulate_fast
from backend.advisor.twin.model import JobModel, NetworkModel, Partitioning
from backend.advisor.twin.outcomes import Simulated, Tier
from backend.advisor.twin.rates import throughput_of
from backend.domain.advice import Mode
from tests.support.twin_models import ALIGNED, edge, three_vertices, vertex

UNALIGNED = replace(ALIGNED, mode=Mode.UNALIGNED)
SCALE = FastScale(grain=4, warm_up_ms=30_000.0)


def run(model: JobModel, **changes: object) -> Simulated:
    return simulate_fast(replace(model, **changes), checkpoints=6, scale=SCALE)  # type: ignore[arg-type]


def durations(found: Simulated) -> float:
    return median(c.duration_ms for c in found.checkpoints)


def test_the_same_seed_gives_the_same_run_and_another_seed_another():
    model = three_vertices()

    first, again = (simulate_fast(model, seed=3, checkpoints=3, scale=SCALE) for _ in range(2))
    other = simulate_fast(model, seed=4, checkpoints=3, scale=SCALE)

    assert first == again
    assert first.tier is Tier.FAST
    assert [c.duration_ms for c in other.checkpoints] != [c.duration_ms for c in first.checkpoints]


def test_an_aligned_barrier_waits_behind_full_queues_and_persists_nothing():
    found = run(three_vertices())

    flow = throughput_of(three_vertices())
    full_ms = flow.queued_bytes_max / flow.bytes_per_ms
    assert 0.4 * full_ms < durations(found) < 2 * full_ms
    assert all(c.persisted_bytes == 0 and not c.is_expired for c in found.checkpoints)
    assert all(c.travel_ms <= c.duration_ms and c.alignment_ms <= c.duration_ms for c in found.checkpoints)
    assert found.records_per_s == pytest.approx(2000, rel=0.05)


def test_an_unaligned_barrier_overtakes_what_is_queued_and_persists_it():
    found = run(three_vertices(), settings=UNALIGNED)

    most = throughput_of(three_vertices()).queued_bytes_max
    assert durations(found) < 150
    assert all(0.4 * most < c.persisted_bytes < 1.6 * most for c in found.checkpoints)


def test_an_aligned_timeout_limits_the_travel_and_persists_less():
    always = run(three_vertices(), settings=UNALIGNED)
    found = run(three_vertices(), settings=replace(UNALIGNED, aligned_timeout_ms=1000.0))

    assert 1000 < durations(found) < 1200
    assert all(c.persisted_bytes > 0 for c in found.checkpoints)
    persisted = [median(c.persisted_bytes for c in one.checkpoints) for one in (found, always)]
    assert persisted[0] < persisted[1]


def test_a_timeout_that_no_barrier_reaches_keeps_checkpoints_aligned():
    calm = three_vertices(rate_per_s=500.0, settings=replace(UNALIGNED, aligned_timeout_ms=2000.0))
    found = run(calm)

    assert all(c.persisted_bytes == 0 and c.duration_ms < 500 for c in found.checkpoints)
    assert found.records_per_s == pytest.approx(500, rel=0.02)


@pytest.mark.parametrize("cap", [0, 200_000, 500_000])
def test_a_cap_bounds_the_in_flight_data_of_every_subtask(cap: int):
    free = run(three_vertices(), settings=UNALIGNED)
    found = run(three_vertices(), settings=replace(UNALIGNED, inflight_cap_bytes=cap))

    assert all(c.persisted_bytes <= 12 * cap for c in found.checkpoints)
    assert all(not c.is_expired for c in found.checkpoints)
    assert durations(found) > durations(free)


def test_checkpoints_that_reach_the_timeout_expire_and_the_job_goes_on():
    found = run(three_vertices(), settings=replace(ALIGNED, timeout_ms=400.0))

    assert [(c.is_expired, c.duration_ms) for c in found.checkpoints] == [(True, pytest.approx(400.0))] * 6
    assert found.records_per_s == pytest.approx(2000, rel=0.05)


def test_at_least_once_barriers_wait_in_queues_but_block_no_channel():
    exactly = run(three_vertices())
    found = run(three_vertices(), settings=replace(ALIGNED, is_exactly_once=False))

    # Data behind the barriers that have arrived is read too, so the data in front of the last barrier drains slowly.
    assert durations(exactly) < durations(found) < 4 * durations(exactly)
    assert all(c.persisted_bytes == 0 for c in found.checkpoints)


def test_two_aligned_checkpoints_may_run_at_the_same_time():
    fast = replace(ALIGNED, interval_ms=700.0)
    alone, both = run(three_vertices(), settings=fast), run(three_vertices(), settings=replace(fast, max_concurrent=2))

    def overlaps(found: Simulated) -> bool:
        ends = [c.triggered_ms + c.duration_ms for c in found.checkpoints]
        return any(c.triggered_ms < end - 1 for c, end in zip(found.checkpoints[1:], ends, strict=False))

    assert not overlaps(alone)
    assert overlaps(both)


def test_remote_channels_hold_more_and_obey_their_credits():
    near = run(three_vertices())
    far = run(three_vertices(), network=NetworkModel(is_remote_ratio=0.5))
    bare = NetworkModel(is_remote_ratio=0.5, exclusive_buffers_per_channel=0, floating_buffers_per_gate=8)

    assert durations(far) > durations(near)
    for mode in (ALIGNED, UNALIGNED, replace(UNALIGNED, aligned_timeout_ms=500.0)):
        found = run(three_vertices(settings=mode), network=bare)
        assert not any(c.is_expired for c in found.checkpoints)


def test_debloating_keeps_the_queues_to_its_target():
    found = run(three_vertices(), network=NetworkModel(debloat_target_ms=300.0))

    assert durations(found) == pytest.approx(600, rel=0.5)


@pytest.mark.parametrize("partitioning", list(Partitioning))
def test_every_partitioning_moves_barriers(partitioning: Partitioning):
    model = three_vertices(rate_per_s=25.0)
    model = replace(model, edges=(edge("source", "map", partitioning), edge("map", "sink", partitioning)))

    for settings in (ALIGNED, UNALIGNED):
        found = run(model, settings=settings)
        assert all(not c.is_expired and c.duration_ms < 3000 for c in found.checkpoints)


def test_a_join_reads_all_its_inputs():
    model = three_vertices(rate_per_s=300.0)
    right = replace(model.vertices[0], id=vertex("right").id)
    model = replace(
        model, vertices=(model.vertices[0], right, *model.vertices[1:]), edges=(*model.edges, edge("right", "sink"))
    )

    assert run(model).records_per_s == pytest.approx(600, rel=0.02)


def test_a_long_callback_and_a_sync_part_delay_barriers_that_overtake():
    source, middle, sink = three_vertices().vertices
    storm = replace(sink, callback_period_ms=4000.0, callback_ms=3500.0)
    slow = replace(middle, sync_ms=(1.0, 1.0, 900.0, 1.0))

    held = run(three_vertices(settings=UNALIGNED), vertices=(source, middle, storm))
    paused = run(three_vertices(settings=UNALIGNED), vertices=(source, slow, sink))

    assert max(c.duration_ms for c in held.checkpoints) > 1000
    assert all(c.sync_ms == 900 and c.duration_ms > 900 for c in paused.checkpoints)


def test_uploads_share_the_store():
    source, middle, sink = three_vertices(rate_per_s=300.0).vertices
    large = replace(sink, upload_bytes=(5e6,) * 4, async_fixed_ms=(40.0,) * 4)
    found = run(three_vertices(rate_per_s=300.0, settings=UNALIGNED), vertices=(source, middle, large))

    assert durations(found) > 4 * 5e6 / 50_000 + 40
    assert all(c.checkpointed_bytes >= 20e6 for c in found.checkpoints)


def test_the_usual_size_of_a_run_is_bounded():
    model = three_vertices(settings=replace(ALIGNED, interval_ms=600_000.0))
    small = scale_of(model, 8)
    hundredfold = tuple(replace(v, service_us=tuple(us / 100 for us in v.service_us)) for v in model.vertices)
    large = scale_of(replace(model, vertices=hundredfold), 8)

    assert small.gap_ms is not None
    assert "triggered" in small.notes[0]
    assert large.grain <= small.grain
    assert large.warm_up_ms < small.warm_up_ms


def test_a_forward_edge_between_unequal_parallelisms_is_refused():
    model = three_vertices()
    model = replace(
        model, vertices=(vertex("source", 2, source=model.vertices[0].source), *model.vertices[1:]),
        edges=(edge("source", "map", Partitioning.FORWARD), model.edges[1]),
    )  # fmt: skip

    with pytest.raises(ValueError, match="2 to 4"):
        simulate_fast(model)
