"""Changes of a model: what they change, and which ones do not apply."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.advisor.twin.asking.changes import WhatIf
from backend.advisor.twin.asking.changing import changed
from backend.advisor.twin.model.model import JobModel, Partitioning
from backend.domain.advice import Mode
from backend.domain.engines import FLINK, RUNTIME, SPARK, flink
from backend.domain.errors import InvalidInputError
from backend.domain.ids import VertexId
from tests.support.twin_models import edge, three_vertices, vertex

SINK = VertexId("sink")


def fields_of(model: JobModel, what_if: WhatIf) -> list[str]:
    with pytest.raises(InvalidInputError) as refused:
        changed(model, what_if)
    return [p.field for p in refused.value.problems]


def with_sink(**values: object) -> JobModel:
    model = three_vertices()
    return replace(model, vertices=(*model.vertices[:2], replace(model.vertices[2], **values)))  # type: ignore[arg-type]


def test_no_change_leaves_the_model_as_it_is():
    assert changed(three_vertices(), WhatIf()) == three_vertices()


@pytest.mark.parametrize(
    ("what_if", "mode", "timeout"),
    [
        (WhatIf(mode=Mode.UNALIGNED), Mode.UNALIGNED, 0.0),
        (WhatIf(mode=Mode.ALIGNED_WITH_TIMEOUT, aligned_timeout_ms=500.0), Mode.ALIGNED_WITH_TIMEOUT, 500.0),
    ],
)
def test_a_mode_has_its_timeout_and_can_be_taken_back(what_if: WhatIf, mode: Mode, timeout: float):
    there = changed(three_vertices(), what_if)

    assert (there.settings.mode, there.settings.aligned_timeout_ms) == (mode, timeout)
    assert changed(there, WhatIf(mode=Mode.ALIGNED)) == three_vertices()


def test_an_aligned_timeout_of_an_unaligned_job_changes_its_mode():
    unaligned = changed(three_vertices(), WhatIf(mode=Mode.UNALIGNED))

    assert changed(unaligned, WhatIf(aligned_timeout_ms=100.0)).settings.mode is Mode.ALIGNED_WITH_TIMEOUT


def test_settings_and_buffers_are_replaced():
    after = changed(
        replace(three_vertices(), engine=RUNTIME),
        WhatIf(
            mode=Mode.UNALIGNED,
            inflight_cap_bytes=1000,
            interval_ms=10_000.0,
            timeout_ms=5000.0,
            min_pause_ms=100.0,
            debloat_target_ms=300.0,
        ),
    )

    assert after.settings.inflight_cap_bytes == 1000
    assert (after.settings.interval_ms, after.settings.timeout_ms, after.settings.min_pause_ms) == (10_000, 5000, 100)
    assert after.network.debloat_target_ms == 300.0
    back = changed(after, WhatIf(is_uncapped=True, is_debloat_off=True))
    assert back.settings.inflight_cap_bytes is None
    assert back.network.debloat_target_ms is None


def test_more_subtasks_share_the_input_and_state_of_the_old_ones():
    model = with_sink(
        input_shares=(0.28, 0.24, 0.24, 0.24),
        service_us=(4000.0, 2000.0, 2000.0, 2000.0),
        state_bytes=(400.0, 100.0, 100.0, 100.0),
        max_parallelism=128,
    )

    after = changed(model, WhatIf(parallelism=((SINK, 8),))).vertex(SINK)

    assert after.input_shares == pytest.approx((0.14, 0.14) + (0.12,) * 6)
    assert after.service_us == pytest.approx((4000.0,) * 2 + (2000.0,) * 6)
    assert after.state_bytes == pytest.approx((200.0,) * 2 + (50.0,) * 6)


def test_key_groups_that_do_not_divide_evenly_make_shares_uneven():
    after = changed(with_sink(max_parallelism=128), WhatIf(parallelism=((SINK, 3),))).vertex(SINK)

    assert after.input_shares == pytest.approx((43 / 128, 43 / 128, 42 / 128))


def test_a_hot_key_stays_whole():
    model = with_sink(input_shares=(0.475, 0.175, 0.175, 0.175), max_parallelism=128)

    after = changed(model, WhatIf(parallelism=((SINK, 16),)))

    assert max(after.vertex(SINK).input_shares) > 0.475 - 1.25 * 0.175
    assert sum(after.vertex(SINK).input_shares) == pytest.approx(1.0)
    assert "hot key" in after.assumptions[-1].reason


def test_behind_a_rebalance_new_subtasks_get_equal_shares():
    model = with_sink(input_shares=(0.4, 0.2, 0.2, 0.2))
    model = replace(model, edges=(model.edges[0], edge("map", "sink", Partitioning.REBALANCE)))

    assert changed(model, WhatIf(parallelism=((SINK, 2),))).vertex(SINK).input_shares == (0.5, 0.5)


def test_without_skew_and_without_the_slow_host():
    model = with_sink(
        input_shares=(0.4, 0.2, 0.2, 0.2),
        service_us=(4000.0, 2000.0, 2000.0, 2000.0),
        slow_host_factors=(2.0, 1.0, 1.0, 1.0),
    )

    after = changed(model, WhatIf(without_skew=True, without_slow_host=True)).vertex(SINK)

    assert after.input_shares == (0.25,) * 4
    assert after.service_us == (2000.0,) * 4


def test_load_multiplies_the_rate_of_every_source():
    after = changed(three_vertices(rate_per_s=1000.0), WhatIf(load_factor=1.5))

    assert after.vertices[0].source is not None
    assert after.vertices[0].source.rate_per_s == 1500.0


@pytest.mark.parametrize(
    ("what_if", "field"),
    [
        (WhatIf(aligned_timeout_ms=100.0), "aligned_timeout_ms"),
        (WhatIf(mode=Mode.ALIGNED, aligned_timeout_ms=100.0), "aligned_timeout_ms"),
        (WhatIf(mode=Mode.ALIGNED_WITH_TIMEOUT), "aligned_timeout_ms"),
        (WhatIf(mode=Mode.ALIGNED_WITH_TIMEOUT, aligned_timeout_ms=0.0), "aligned_timeout_ms"),
        (WhatIf(mode=Mode.UNALIGNED, aligned_timeout_ms=100.0), "aligned_timeout_ms"),
        (WhatIf(mode=Mode.UNALIGNED, aligned_timeout_ms=float("nan")), "aligned_timeout_ms"),
        (WhatIf(mode=Mode.UNALIGNED, inflight_cap_bytes=10), "inflight_cap_bytes"),
        (WhatIf(inflight_cap_bytes=10), "inflight_cap_bytes"),
        (WhatIf(debloat_target_ms=100.0, is_debloat_off=True), "is_debloat_off"),
        (WhatIf(debloat_target_ms=0.0), "debloat_target_ms"),
        (WhatIf(interval_ms=1.0), "interval_ms"),
        (WhatIf(timeout_ms=float("inf")), "timeout_ms"),
        (WhatIf(min_pause_ms=-1.0), "min_pause_ms"),
        (WhatIf(load_factor=0.0), "load_factor"),
        (WhatIf(load_factor=2.0), "load_factor"),
        (WhatIf(without_slow_host=True), "without_slow_host"),
        (WhatIf(parallelism=((VertexId("nowhere"), 2),)), "parallelism[nowhere]"),
        (WhatIf(parallelism=((SINK, 0),)), "parallelism[sink]"),
        (WhatIf(parallelism=((SINK, 2), (SINK, 3))), "parallelism[sink]"),
        (WhatIf(parallelism=((SINK, 4090),)), "parallelism"),
    ],
)
def test_a_change_that_does_not_apply_is_refused(what_if: WhatIf, field: str):
    assert fields_of(replace(three_vertices(), engine=FLINK), what_if) == [field]


def test_an_engine_is_not_asked_for_what_it_lacks():
    unaligned = WhatIf(mode=Mode.UNALIGNED)

    assert fields_of(replace(three_vertices(), engine=SPARK), unaligned) == ["mode"]
    old = replace(changed(three_vertices(), unaligned), engine=flink("1.13"))
    assert fields_of(old, WhatIf(aligned_timeout_ms=100.0, debloat_target_ms=100.0)) == [
        "aligned_timeout_ms",
        "debloat_target_ms",
    ]


@pytest.mark.parametrize("limits", [{"is_exactly_once": False}, {"max_concurrent": 2}])
def test_jobs_that_cannot_be_unaligned(limits: dict[str, object]):
    model = three_vertices()
    model = replace(model, settings=replace(model.settings, **limits))  # type: ignore[arg-type]

    assert fields_of(model, WhatIf(mode=Mode.UNALIGNED)) == ["mode"]


def test_the_ends_of_a_forward_edge_change_together():
    model = three_vertices()
    model = replace(model, edges=(model.edges[0], edge("map", "sink", Partitioning.FORWARD)))

    assert fields_of(model, WhatIf(parallelism=((SINK, 2),))) == ["parallelism[sink]"]
    both = changed(model, WhatIf(parallelism=((SINK, 2), (VertexId("map"), 2))))
    assert [v.parallelism for v in both.vertices] == [4, 2, 2]


def test_no_vertex_exceeds_its_maximum_parallelism():
    assert fields_of(with_sink(max_parallelism=8), WhatIf(parallelism=((SINK, 9),))) == ["parallelism[sink]"]
    assert vertex("a").max_parallelism is None
