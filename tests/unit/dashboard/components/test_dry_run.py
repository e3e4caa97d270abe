"""The sentence of a dry run: accepted, refused by the target, and refused before the target was asked."""

from __future__ import annotations

from datetime import UTC, datetime

from backend.contracts.advice import DryRunOut
from dashboard.components.dry_run import tried
from tests.support.dash_calls import texts


def said(refusals: list[str], *, is_checked: bool) -> str:
    found = DryRunOut(
        job_id="j", target="demo", url="http://t.test", engine_run_id="1", changes=[], is_accepted=not refusals,
        is_checked=is_checked, refusals=refusals, as_of=datetime(2026, 11, 21, tzinfo=UTC),
    )  # fmt: skip
    return texts(tried(found))


def test_it_says_where_a_change_would_be_sent_and_who_refuses_it():
    to = "sent to demo (http://t.test)."
    assert said([], is_checked=True) == f"It would be {to} The target was asked and accepts it."
    asked = said(["too short", "not now"], is_checked=True)
    assert asked == f"It would be {to} The target was asked and refuses it: too short; not now."
    assert said(["no key"], is_checked=False) == f"It would not be {to} It would be refused: no key."
