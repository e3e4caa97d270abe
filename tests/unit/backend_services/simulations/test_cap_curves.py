"""A curve over the cap goes from aligned to unaligned checkpoints, and is bounded like every simulation."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import ClassVar

import pytest

from backend.contracts.cap_curves import CapCurveIn, CapPointOut, cap_curve_id_of
from backend.contracts.simulations import SimulationIn
from backend.domain.errors import InvalidInputError, TooLargeError
from backend.services.simulations.cap_curves import KIND, SHARES, caps_of, check_curve, plan_curve, run
from backend.services.simulations.catalog import LIMITS
from backend.services.simulations.simulating import Progress, SimulationStoppedError
from backend.services.simulations.simulating import run as simulate

_CAP, _ON_CAP = "runtime.inflight-cap.bytes", "runtime.inflight-cap.on-cap"
_REQUEST = CapCurveIn(
    shape="backpressured", parallelism=2, duration_s=16.0, settings={"execution.checkpointing.interval": "2 s"}
)


def _curve(request=_REQUEST, progress=None, **more):
    document = {"kind": KIND, "request": request.model_dump(mode="json")}
    return list(run(document, progress or Progress(), **more).runs)


@pytest.fixture(scope="module")
def points():
    return _curve()


def test_the_caps_are_shares_of_what_a_subtask_persists_without_one_between_aligned_and_unaligned(points):
    most = points[-1].subtask_persisted_max_bytes

    assert [p.protocol for p in points] == ["aligned", *["capped"] * len(SHARES), "unaligned"]
    assert [p.cap_bytes for p in points[1:-1]] == [round(share * most) for share in SHARES]
    assert (points[0].cap_bytes, points[-1].cap_bytes) == (None, None)
    assert all(p.subtask_persisted_max_bytes <= p.cap_bytes for p in points[1:-1])


def test_a_higher_cap_gives_shorter_checkpoints_that_persist_more_from_aligned_to_unaligned(points):
    durations, persisted = [p.duration_p50_ms for p in points], [p.persisted_p50_bytes for p in points]

    nearly = 0.05 * (durations[0] - durations[-1])
    assert all(after <= before + nearly for before, after in pairwise(durations)), durations
    assert all(after >= before for before, after in pairwise(persisted)), persisted
    assert durations[-1] < durations[len(points) // 2] < durations[0]
    assert persisted[0] == points[0].persisted_max_bytes == 0 < persisted[len(points) // 2] < persisted[-1]


def test_a_point_is_what_the_lab_shows_of_the_same_request(points):
    settings = {**_REQUEST.settings, _CAP: f"{points[3].cap_bytes} b"}
    same = {"shape": _REQUEST.shape, "parallelism": 2, "duration_s": 16.0}
    capped = simulate(SimulationIn(protocol="capped", settings=settings, **same), Progress()).runs[0]
    ends = SimulationIn(protocol="aligned", second_protocol="unaligned", settings=_REQUEST.settings, **same)
    aligned, unaligned = simulate(ends, Progress()).runs

    for point, shown in ((points[0], aligned), (points[3], capped), (points[-1], unaligned)):
        assert (point.duration_p50_ms, point.duration_max_ms) == (shown.duration_p50_ms, shown.duration_max_ms)
        assert (point.completed_count, point.persisted_max_bytes) == (shown.completed_count, shown.persisted_max_bytes)


def test_given_caps_are_used_in_ascending_order_with_the_policy_of_the_request():
    asked = _REQUEST.model_copy(update={"caps_bytes": [40_000, 8_000, 8_000], "duration_s": 6.0})
    partial = asked.model_copy(update={"settings": {**asked.settings, _ON_CAP: "partial"}})

    assert [p.cap_bytes for p in _curve(asked)] == [None, 8_000, 40_000, None]
    planned = plan_curve(partial, 8_000, "capped").spec.config
    assert (planned.cap_bytes, planned.on_cap.value) == (8_000, "partial")
    assert cap_curve_id_of(asked) == cap_curve_id_of(asked.model_copy(update={"caps_bytes": [8_000, 40_000]}))
    assert cap_curve_id_of(asked) != cap_curve_id_of(partial)


def test_a_job_without_in_flight_data_has_only_the_cap_of_nothing():
    bare = {"completed_count": 0, "failed_count": 0, "duration_p50_ms": None, "duration_max_ms": None}
    nothing = CapPointOut(
        protocol="unaligned", cap_bytes=None, **bare,
        persisted_p50_bytes=None, persisted_max_bytes=None, subtask_persisted_max_bytes=None,
    )  # fmt: skip

    assert caps_of(nothing) == caps_of(nothing.model_copy(update={"subtask_persisted_max_bytes": 0})) == [0]


def test_a_request_that_sets_the_cap_itself_is_refused_with_what_to_do():
    with pytest.raises(InvalidInputError) as refused:
        check_curve(_REQUEST.model_copy(update={"settings": {_CAP: "8 kb"}}))
    assert [(p.field, p.allowed) for p in refused.value.problems] == [
        (f"settings.{_CAP}", "leave it out, or set caps_bytes")
    ]


@pytest.mark.parametrize("settings", [{"runtime.sst.runs-max": "3"}, {"no.such": "1"}])
def test_a_setting_that_no_run_of_the_curve_uses_is_refused(settings):
    with pytest.raises(InvalidInputError):
        check_curve(_REQUEST.model_copy(update={"settings": settings}))


def test_all_runs_together_have_a_limit_and_the_refusal_names_a_time_that_fits():
    large = CapCurveIn(shape="backpressured", duration_s=600.0)
    with pytest.raises(TooLargeError, match=r"in 9 runs are more than 3,000,000; run at most 111 s") as refused:
        check_curve(large)

    assert (refused.value.what, refused.value.field) == ("curve", "duration_s")
    check_curve(large.model_copy(update={"duration_s": 111.0}))


def test_a_curve_stops_if_it_is_cancelled_or_needs_too_much_processor_time():
    stopped = Progress(is_stopped=True)
    with pytest.raises(SimulationStoppedError):
        _curve(progress=stopped)
    with pytest.raises(TooLargeError, match="more than 0 s of CPU time"):
        _curve(limits=replace(LIMITS, cpu_max_s=0.0))


def test_the_progress_grows_over_all_runs():
    class Seen(Progress):
        ratios: ClassVar[list[float]] = []

        def __setattr__(self, name, value):
            if name == "ratio":
                self.ratios.append(value)
            super().__setattr__(name, value)

    seen = Seen()
    _curve(_REQUEST.model_copy(update={"caps_bytes": [0], "duration_s": 4.0}), seen)

    assert seen.ratios == sorted(seen.ratios)
    assert seen.ratios[1] < 0.1
    assert seen.ratios[-1] == 1.0
