"""Every name and text that people or other programs send is cleaned where it comes in."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from backend.contracts.alerts import ReceiverIn, SilenceIn
from backend.contracts.annotations import AnnotationIn
from backend.contracts.api import TargetIn
from backend.contracts.spark import SourceIn, SparkPushIn

_ODD = "a\x1b[2J\u202eb"
_CLEANED = "a [2J b"
_AT = "2026-11-21T12:00:00Z"


def test_names_of_what_is_pushed_are_one_line_of_printable_characters():
    event = {"event": "alive", "seen_at": _AT, "id": "q", "run_id": "r", "name": _ODD + "\n"}
    push = SparkPushIn.model_validate({"deployment": _ODD, "sent_at": _AT, "events": [event]})

    assert push.deployment == _CLEANED
    assert push.events[0].name == _CLEANED + " "


def test_names_of_receivers_targets_and_authors_are_cleaned_and_texts_keep_their_lines():
    receiver = ReceiverIn.model_validate({"name": _ODD, "kind": "webhook", "url": "http://hook"})
    silence = SilenceIn.model_validate({"matchers": [], "ends_at": _AT, "reason": f"{_ODD}\nb", "author": _ODD})
    target = TargetIn.model_validate({"url": "http://flink", "name": _ODD, "labels": {_ODD: _ODD}})
    note = AnnotationIn.model_validate({"text": _ODD, "tags": [_ODD]})

    assert (receiver.name, silence.author, silence.reason) == (_CLEANED, _CLEANED, f"{_CLEANED}\nb")
    assert (target.name, target.labels) == (_CLEANED, {_CLEANED: _CLEANED})
    assert (note.text, note.tags) == (_CLEANED, [_CLEANED])


@pytest.mark.parametrize("value", [True, {"a": 1}, [1]])
def test_a_metric_of_a_source_is_a_text_or_a_number(value):
    with pytest.raises(ValidationError):
        SourceIn.model_validate({"metrics": {"lag": value}})
    assert SourceIn.model_validate({"metrics": {"lag": "5", "rows": 5, "rate": 0.5, "none": None}}).metrics


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59-12:00"])
def test_an_instant_at_an_end_of_the_calendar_is_refused(at):
    with pytest.raises(ValidationError):
        AnnotationIn.model_validate({"text": "deployed", "at": at})
