"""Tests of the answer to a connection test."""

from __future__ import annotations

from backend.contracts.api import TargetTestOut
from dashboard.components.target_tests import answer
from tests.support.dash_calls import texts


def test_a_failed_test_has_its_cure_and_another_root_says_what_to_do_with_it():
    failed = TargetTestOut(is_ok=False, problem="HTTP 401.", cure="pass a bearer token", duration_ms=12)
    moved = TargetTestOut(is_ok=False, problem="a page", root="http://flink", duration_ms=12)

    assert "HTTP 401 (after 12 ms). Pass a bearer token." in texts(answer(failed))
    assert "The form now has this address" in texts(answer(moved))
    assert "a page. Stay." in texts(answer(moved, on_other_root="Stay."))


def test_a_good_test_names_at_most_six_jobs():
    good = TargetTestOut(is_ok=True, engine="flink", running_jobs=[f"job-{n}" for n in range(8)], duration_ms=1)

    assert "job-5 and 2 more" in texts(answer(good))
    assert "no running job" in texts(answer(good.model_copy(update={"running_jobs": []})))
