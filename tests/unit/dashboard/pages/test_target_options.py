"""Tests of the further fields of the form of targets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.contracts.api import TargetIn, TargetOut
from dashboard.pages.target_options import WrongOptionError, read, values_of
from tests.support.api_examples import example


def form(**values):
    names = [{"type": "target-option", "name": name} for name in values]
    return read(list(values.values()), names)


def test_the_fields_become_those_of_the_api():
    found = form(
        user=" me ",
        password="env:A",
        headers="X-Key=env:B\n X-Other = file:c\n\n",
        ca="file:ca.pem",
        proxy="http://proxy:3128",
        proxy_user="you",
        proxy_password="env:D",
        labels="deployment=orders",
        interval_s="5",
        ui_url="",
        bearer=None,
    )

    target = TargetIn(url="https://flink", **found)
    assert target.connection is not None
    assert target.connection.model_dump(exclude_none=True) == {
        "basic": {"user": "me", "password": "env:A"},
        "headers": {"X-Key": "env:B", "X-Other": "file:c"},
        "ca": "file:ca.pem",
        "proxy": {"url": "http://proxy:3128", "user": "you", "password": "env:D"},
    }
    assert (target.labels, target.interval_s, target.ui_url) == ({"deployment": "orders"}, 5.0, None)
    assert form(bearer="", kind=None) == {}
    assert read(None, None) == {}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"user": "me"}, "fill in both"),
        ({"headers": "canary"}, "Headers: write NAME=VALUE"),
        ({"labels": "=x"}, "Labels: write NAME=VALUE, each on a line of its own"),
        ({"labels": "a=1\na=2"}, "Labels: a is there twice"),
        ({"labels": "team=canary, env=prod"}, "the value of team, write the value in double quotes"),
        ({"labels": "canary, env=prod"}, "If the name itself has a comma"),
        ({"interval_s": "often"}, "write a number"),
        ({"proxy_user": "me"}, "address of the proxy too"),
    ],
)
def test_a_wrong_field_is_named_and_not_repeated(values, words):
    with pytest.raises(WrongOptionError) as wrong:
        form(**values)

    assert words in str(wrong.value)
    assert "canary" not in str(wrong.value)


_NAMES = st.text(st.characters(exclude_categories=("C", "Z"), exclude_characters="=,"), min_size=1, max_size=8)
_VALUES = st.text(st.sampled_from('ab ,="'), max_size=12) | st.text(st.characters(exclude_categories=("C", "Zl", "Zp")))


@given(st.dictionaries(_NAMES, _VALUES, max_size=4))
def test_labels_are_read_as_they_are_shown_also_if_another_one_was_added(labels):
    target = TargetOut.model_validate(example("target")).model_copy(update={"labels": labels})
    shown = values_of(target).get("labels", "")

    assert form(labels=shown + "\nadded last=1")["labels"] == labels | {"added last": "1"}
