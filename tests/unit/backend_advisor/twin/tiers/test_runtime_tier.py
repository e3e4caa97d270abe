"""The tier that runs a model on the reference runtime: its job, its size, and what it adds after the run."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import pytest

from backend.advisor.advice import Interval
from backend.advisor.twin.asking.changes import WhatIf
from backend.advisor.twin.asking.changing import changed
from backend.advisor.twin.model.model import JobModel, StoreModel
from backend.advisor.twin.model.rates import throughput_of
from backend.advisor.twin.tiers.runtime_tier import STEPS_MAX, Scale, drawn, job_of, run, scale_of, simulate
from backend.domain.advice import Mode
from backend.domain.errors import TooLargeError
from backend.domain.ids import VertexId
from tests.support.twin_models import three_vertices

UNSCALED = Scale(1, 3000.0, 21_000.0, ())


def slow(*, rate_per_s: float | None = None, service_us: float = 20_000.0) -> JobModel:
    """Return a job with few records a second, which is simulated quickly."""
    model = three_vertices(rate_per_s=rate_per_s)
    source, middle, sink = model.vertices
    return replace(model, vertices=(source, middle, replace(sink, service_us=(service_us,) * 4)))


def scale_for(model: JobModel) -> Scale:
    return scale_of(model, throughput_of(model))


def test_the_flow_of_a_model_is_limited_by_its_fullest_subtask():
    flow = throughput_of(three_vertices())

    assert flow.bottleneck == "sink"
    assert flow.records_per_s[VertexId("source")] == pytest.approx(2000.0)
    uneven = replace(three_vertices().vertices[2], input_shares=(0.4, 0.2, 0.2, 0.2))
    skewed = replace(three_vertices(), vertices=(*three_vertices().vertices[:2], uneven))
    assert throughput_of(skewed).records_per_s[VertexId("sink")] == pytest.approx(1250.0)
    calm = throughput_of(three_vertices(rate_per_s=1000.0))
    assert (calm.bottleneck, calm.use_ratio) == (None, pytest.approx(0.5))


def test_the_job_has_the_settings_costs_and_shares_of_the_model():
    model = changed(three_vertices(rate_per_s=900.0), WhatIf(mode=Mode.UNALIGNED, debloat_target_ms=300.0))
    source, middle, sink = model.vertices
    sink = replace(
        sink,
        service_us=(8000.0, 2000.0, 2000.0, 2000.0),
        input_shares=(0.4, 0.2, 0.2, 0.2),
        sync_ms=(4.0, 2.0, 2.0, 2.0),
    )
    spec = job_of(replace(model, vertices=(source, replace(middle, output_ratio=0.5), sink)), UNSCALED)

    assert spec.config.is_unaligned
    assert spec.config.aligned_timeout_us == 0
    assert (spec.config.is_debloating, spec.config.debloat_target_us) == (True, 300_000)
    assert spec.config.rpc_latency_us == 5000
    first, second, third = spec.graph.vertices
    assert (first.rate, first.record_bytes) == (900.0, 1000)
    assert second.fan_out == 0.5
    assert (third.cost_us, third.slow_factors) == (2000, {0: 4.0})
    assert (third.sync_us, third.slow_sync_factors[1]) == (4000, 0.5)
    assert spec.graph.edges[1].shares == (0.4, 0.2, 0.2, 0.2)


def test_a_large_job_is_simulated_with_fewer_larger_records_and_says_so():
    model = replace(three_vertices(), edges=tuple(replace(e, record_bytes=100.0) for e in three_vertices().edges))
    fast = replace(model, vertices=tuple(replace(v, service_us=(40.0,) * 4) for v in model.vertices))
    scale = scale_for(fast)

    assert scale.bundle > 1
    assert any("records are simulated as one" in note for note in scale.notes)
    assert throughput_of(fast).steps_per_ms * scale.run_ms / scale.bundle <= 1.1 * STEPS_MAX
    spec = job_of(fast, scale)
    assert spec.graph.vertices[2].cost_us == 40 * scale.bundle
    assert spec.graph.vertices[0].record_bytes == 100 * scale.bundle


def test_checkpoints_that_are_far_apart_are_simulated_more_often_and_that_is_said():
    model = replace(slow(), settings=replace(slow().settings, interval_ms=600_000.0))
    scale = scale_for(model)

    assert scale.interval_ms < 600_000.0
    assert scale.notes == (f"checkpoints are simulated every {scale.interval_ms / 1000:.3g} s, not every 600 s",)
    assert (scale_for(slow()).interval_ms, scale_for(slow()).notes) == (3000.0, ())


def test_many_large_records_are_simulated_for_a_shorter_time_and_that_is_said():
    model = replace(three_vertices(), network=replace(three_vertices().network, segment_bytes=4096))
    fast = replace(model, vertices=tuple(replace(v, service_us=(4.0,) * 4) for v in model.vertices))
    scale = scale_for(fast)

    # Four records of 1000 bytes fill a segment, so several simulated as one would fill it with fewer.
    assert scale.bundle == 1
    assert scale.run_ms < 60_000.0
    assert scale.notes == (
        f"only {scale.run_ms / 1000:.3g} s are simulated, with a checkpoint every {scale.interval_ms / 1000:.3g} s",
    )


def test_checkpoints_meet_a_long_callback_at_all_its_times_and_that_is_said():
    source, middle, sink = slow().vertices
    storm = replace(sink, callback_period_ms=8000.0, callback_ms=(3500.0,) * 4)
    scale = scale_for(replace(slow(), vertices=(source, middle, storm)))

    # Eight phases are a second apart, and an odd number of seconds meets them all.
    assert scale.interval_ms == 3000.0
    assert scale.notes == ("checkpoints are simulated every 3 s, to meet a callback at all its times",)
    apart = replace(slow().settings, interval_ms=8000.0)
    beside = scale_for(replace(slow(), vertices=(source, middle, storm), settings=apart))
    assert beside.interval_ms % 2000.0 == 1000.0


def test_an_overloaded_job_waits_if_aligned_and_persists_data_if_not():
    model = replace(slow(), network=replace(slow().network, segment_bytes=4096))
    aligned = simulate(model, scale=UNSCALED)
    unaligned = simulate(changed(model, WhatIf(mode=Mode.UNALIGNED)), scale=UNSCALED)

    assert [aligned.records_per_s, unaligned.records_per_s] == pytest.approx([200.0, 200.0], rel=0.1)
    assert median(c.duration_ms for c in aligned.checkpoints) > 1000
    assert all(c.persisted_bytes == 0 for c in aligned.checkpoints)
    assert median(c.duration_ms for c in unaligned.checkpoints) < 200
    assert median(c.persisted_bytes for c in unaligned.checkpoints) > 50_000


def test_writing_and_the_trigger_are_added_to_each_checkpoint():
    model = slow(rate_per_s=40.0)
    source, middle, sink = model.vertices
    sink = replace(sink, upload_bytes=(0.0, 0.0, 0.0, 4e6), async_fixed_ms=(30.0,) * 4)
    writing = replace(model, vertices=(source, middle, sink), store=StoreModel(bytes_per_ms=10_000.0))
    plain = median(c.duration_ms for c in simulate(model, scale=UNSCALED).checkpoints)
    written = simulate(writing, scale=UNSCALED)

    assert median(c.duration_ms for c in written.checkpoints) == pytest.approx(plain + 430.0, abs=60.0)
    assert {c.checkpointed_bytes for c in written.checkpoints} == {4e6}
    noisy = simulate(replace(writing, store=StoreModel(bytes_per_ms=10_000.0, noise_ratio=0.5)), scale=UNSCALED)
    assert max(c.duration_ms for c in noisy.checkpoints) > 1.2 * max(c.duration_ms for c in written.checkpoints)
    late = simulate(replace(writing, settings=replace(writing.settings, timeout_ms=200.0)), scale=UNSCALED)
    assert all(c.is_expired and c.duration_ms == 200.0 for c in late.checkpoints)


def test_a_seed_repeats_a_run_and_progress_is_reported():
    seen: list[float] = []

    first = run(slow(rate_per_s=40.0), seed=3, scale=UNSCALED, on_progress=seen.append)

    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    assert first.simulated == simulate(slow(rate_per_s=40.0), seed=3, scale=UNSCALED)
    assert len(first.counted) == len(first.simulated.checkpoints)


def test_a_job_with_too_many_subtasks_is_refused():
    wide = changed(three_vertices(), WhatIf(parallelism=((VertexId("sink"), 600),)))

    with pytest.raises(TooLargeError, match="tier"):
        simulate(wide)


def test_the_trigger_delay_is_drawn_from_its_quantiles():
    delay = Interval(10.0, 4.0, 40.0)

    assert [drawn(delay, q) for q in (0.0, 0.05, 0.5, 0.95, 1.0)] == [4.0, 4.0, 10.0, 40.0, 40.0]


def test_uploads_to_one_store_take_turns():
    model = slow(rate_per_s=40.0)
    source, middle, sink = model.vertices
    sink = replace(sink, upload_bytes=(1e6,) * 4)
    shared = StoreModel(bytes_per_ms=10_000.0, shared_bytes_per_ms=4_000.0)
    alone = simulate(
        replace(model, vertices=(source, middle, sink), store=replace(shared, shared_bytes_per_ms=None)), scale=UNSCALED
    )
    together = simulate(replace(model, vertices=(source, middle, sink), store=shared), scale=UNSCALED)

    ends = [median(c.duration_ms for c in run.checkpoints) for run in (alone, together)]
    # Alone, each writes for 100 ms. Together they write for 1 s, less what was written before the last barrier.
    assert 750.0 < ends[1] - ends[0] < 950.0
