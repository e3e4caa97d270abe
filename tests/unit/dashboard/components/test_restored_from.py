"""Tests of the sentences on what a run was restored from."""

import pytest

from backend.contracts.api import RestoredFromOut
from dashboard.components.restored_from import restored_from
from dashboard.pages.job import parts
from tests.support.api_examples import example
from tests.support.dash_calls import texts


def _words(component):
    # The texts of a component are joined by blanks, and some of them begin with a comma or are a full stop.
    return texts(component).replace(" ,", ",").replace(" .", ".")


def _links(component):
    return [part.href for part in component.children if getattr(part, "href", None)]


_STORED = RestoredFromOut(
    checkpoint_id=7, is_savepoint=False, location="runtime:/a/chk-7", job="orders", job_id="j1", run_id="r1"
)


@pytest.mark.parametrize(
    ("changes", "job", "words"),
    [
        ({}, "j2", "Last restored from checkpoint 7 of the job orders."),
        ({}, "j1", "Last restored from checkpoint 7."),
        (
            {"kind": "unaligned checkpoint", "is_claimed": False, "left_out": []},
            "j2",
            "checkpoint 7 of the job orders, an unaligned checkpoint, which it did not claim. No state was left out.",
        ),
        (
            {"kind": "canonical savepoint", "is_savepoint": True, "is_claimed": True, "left_out": ["a:keyed"]},
            "j2",
            "savepoint 7 of the job orders, a canonical savepoint, which it claimed and owns now."
            " The state of 1 operator was left out: a:keyed.",
        ),
        ({"kind": "", "job": ""}, "j2", "Last restored from checkpoint 7."),
        ({"kind": " "}, "j2", "Last restored from checkpoint 7 of the job orders."),
        (
            {"left_out": list("abcdefg"), "left_out_more": 30},
            "j2",
            "The state of 37 operators was left out: a, b, c, d, e and 32 more.",
        ),
        ({"left_out": list("abcdefg")}, "j2", "The state of 7 operators was left out: a, b, c, d, e and 2 more."),
    ],
)
def test_the_origin_is_named_with_its_kind_and_what_was_left_out(changes, job, words):
    shown = restored_from(_STORED.model_copy(update=changes), job)
    assert words in _words(shown)
    assert _links(shown) == ["/ui/jobs/j1/runs/r1/checkpoints/7"]


def test_an_origin_that_is_not_stored_has_no_link():
    shown = restored_from(RestoredFromOut(checkpoint_id=3, is_savepoint=True), "j1")
    assert _words(shown) == "Last restored from savepoint 3."
    assert _links(shown) == []


def test_the_settings_and_counts_of_a_job_have_the_origin():
    found = example("job_detail")
    counts = found.counts.model_copy(update={"restored_from": _STORED})
    assert "Last restored" not in _words(parts.facts(found))
    assert "Last restored from checkpoint 7 of the job orders." in _words(
        parts.facts(found.model_copy(update={"counts": counts}))
    )
