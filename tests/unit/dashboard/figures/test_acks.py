"""Tests of the curve of a checkpoint's acknowledgements, with those of earlier checkpoints behind it."""

from __future__ import annotations

from dashboard.figures import acks
from dashboard.palette import LIGHT


def test_the_curve_of_acknowledgements_ends_now_with_earlier_ones_behind(fake):
    progress = fake._answer("GET", "jobs/jruntime/runs/r/checkpoints/24/progress", b"")
    moved = progress.model_copy(update={"elapsed_ms": 4321, "acknowledged": 11})

    chart = acks.acknowledgements(moved, theme=LIGHT)

    own = next(t for t in chart.figure["data"] if t["name"] == "this checkpoint")
    assert (own["x"][-1], own["y"][-1]) == (4321, 11)
    assert sum(t["name"] == "earlier checkpoints" for t in chart.figure["data"]) == len(progress.past_acks)
    assert "11 of 16" in chart.summary
