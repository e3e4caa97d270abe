"""The curve over the cap has aligned and unaligned at its ends, and its sentence says where it steps back."""

from __future__ import annotations

from itertools import pairwise

import pytest

from backend.contracts.cap_curves import CapCurveOut, CapPointOut
from dashboard.figures.cap_curve import cap_curve, sentence
from dashboard.palette import ALIGNED, LIGHT, UNALIGNED
from tests.support.api_examples import example


def _point(protocol, cap, duration, persisted):
    return CapPointOut(
        protocol=protocol, cap_bytes=cap, completed_count=0 if duration is None else 5, failed_count=0,
        duration_p50_ms=duration, duration_max_ms=duration, persisted_p50_bytes=persisted,
        persisted_max_bytes=persisted, subtask_persisted_max_bytes=persisted,
    )  # fmt: skip


def _points(*inner):
    return [_point("aligned", None, 1_000, 0), *inner, _point("unaligned", None, 100, 100_000)]


def _drawn(points, **more):
    return cap_curve(points, theme=LIGHT, revision="c1", **more)


def test_the_ends_are_outside_of_the_caps_and_have_the_colors_of_their_protocols():
    found: CapCurveOut = example("cap_curve")
    chart = _drawn(found.points)

    above, below = chart.figure["data"]
    places, layout = above["x"], chart.figure["layout"]
    assert places == sorted(places) == below["x"] == layout["xaxis"]["tickvals"]
    assert (places[1], places[-2]) == (0, 1)
    assert (above["marker"]["color"][0], above["marker"]["color"][-1]) == (ALIGNED, UNALIGNED)
    assert above["y"] == [p.duration_p50_ms for p in found.points]
    assert below["y"] == [p.persisted_p50_bytes for p in found.points]
    assert (layout["xaxis"]["ticktext"][0], layout["xaxis"]["ticktext"][-1]) == ("aligned", "unaligned")
    assert [row[1] for row in chart.table.rows] == [p.cap_bytes for p in found.points]


@pytest.mark.parametrize(("is_narrow", "gap"), [(False, 0.09), (True, 0.24)])
def test_labels_of_close_caps_do_not_lie_on_each_other(is_narrow, gap):
    chart = _drawn(_points(*(_point("capped", 1_000 * i, 500, 500) for i in range(1, 41))), is_narrow=is_narrow)

    axis = chart.figure["layout"]["xaxis"]
    shown = [place for place, label in zip(axis["tickvals"], axis["ticktext"], strict=True) if label]
    assert len(shown) > 3
    assert all(after - before >= gap for before, after in pairwise(shown))


def test_the_sentence_says_that_nothing_steps_back_or_where_it_does():
    smooth = _points(_point("capped", 0, 990, 0), _point("capped", 50_000, 500, 50_000))
    steps = _points(_point("capped", 0, 400, 60_000), _point("capped", 50_000, 500, 40_000))

    assert sentence(smooth) == (
        "From aligned to unaligned, the median duration goes from 1.0 s to 100 ms, and a checkpoint persists 0 B to"
        " 100 kB in flight. Neither steps back at a higher cap."
    )
    assert "the duration rises at the cap of 50.0 kB" in sentence(steps)
    assert "the persisted data falls at the cap of 50.0 kB" in sentence(steps)
    # Two runs of the same job differ a little.
    assert "Neither steps back" in sentence(_points(_point("capped", 0, 1_040, 0)))


def test_a_point_without_a_completed_checkpoint_is_named_and_never_drawn_as_zero():
    gap = _points(_point("capped", 2_000, None, None), _point("capped", 50_000, 500, 50_000))

    assert sentence(gap) == "No checkpoint completed with the cap of 2.0 kB, so these have no point."
    assert _drawn(gap).figure["data"][0]["y"][1] is None
    none = [_point("aligned", None, None, None), _point("capped", 0, None, None), _point("unaligned", None, None, None)]
    assert _drawn(none).summary == "No checkpoint completed at any cap."


def test_a_job_without_in_flight_data_says_that_no_cap_changes_anything():
    idle = [_point("aligned", None, 20, 0), _point("capped", 0, 20, 0), _point("unaligned", None, 20, 0)]

    assert "no cap changes anything" in sentence(idle)
    assert _drawn(idle).figure["data"][0]["x"] == pytest.approx([-0.14, 0.5, 1.14])
