"""Tests of the parts of the page that compares two checkpoints."""

from __future__ import annotations

from datetime import UTC

from backend.contracts.comparing import LoadPairOut
from backend.domain.verdict import Basis
from dashboard.components import comparing
from tests.support.api_examples import example
from tests.support.dash_calls import texts


def _found(**changes):
    return example("checkpoint_comparison").model_copy(update=changes)


def test_a_load_without_readings_on_one_side_is_missing_and_not_zero():
    (pair, *_) = _found().loads
    gone = LoadPairOut(vertex_id="v", vertex="map", a=pair.a, b=None)

    assert "map 21 % / – 22 % / – 76 % / –" in texts(comparing.load(_found(loads=[gone])))
    assert comparing.load(_found(loads=[])) is None


def test_a_rate_of_counts_is_marked_as_reconstructed_if_either_side_has_one():
    (pair, *_) = _found().loads

    def said(*bases):
        a, b = (
            side.model_copy(update={"records_per_s": 10.0, "records_per_s_basis": basis})
            for side, basis in zip((pair.a, pair.b), bases, strict=True)
        )
        return texts(comparing.load(_found(loads=[pair.model_copy(update={"a": a, "b": b})])))

    assert "reconstructed" not in said(Basis.MEASURED, Basis.MEASURED)
    assert "10 / 10 reconstructed" in said(Basis.MEASURED, Basis.RECONSTRUCTED)


def test_a_measure_that_no_side_reports_has_no_column():
    assert "Queued" not in texts(comparing.load(_found()))


def test_a_checkpoint_that_is_not_among_the_recent_ones_is_listed_nevertheless():
    options, chosen = comparing.options([], _found().a, UTC)

    assert [o["value"] for o in options] == [chosen]
    assert options[0]["label"].startswith("#411 ")


def test_if_the_subtasks_were_removed_the_largest_phases_are_shown():
    one = _found().a

    assert "Alignment, max" not in texts(comparing.side(one, "A", UTC))
    removed = one.model_copy(update={"are_arrays_removed": True})
    assert "Alignment, max 12.9 s" in texts(comparing.side(removed, "A", UTC))
