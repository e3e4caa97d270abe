"""The comment on a partition records what was removed from it."""

from __future__ import annotations

import pytest

from backend.store.downsampling import NO_RULE, Removed


@pytest.mark.parametrize(
    "removed",
    [Removed(), Removed(arrays=True), Removed(True, frozenset({"a=b'\"\\ %s :x é", NO_RULE}))],
    ids=["nothing", "arrays", "arrays and runs"],
)
def test_a_comment_is_read_as_what_was_written(removed):
    assert Removed.parse(str(removed)) == removed


@pytest.mark.parametrize("comment", ["", "a note of an administrator", "[1]", '{"expired": 3}', "null"])
def test_a_comment_of_somebody_else_records_nothing(comment):
    assert Removed.parse(comment) == Removed()
