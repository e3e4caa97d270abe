"""Tables on the command line: each column is as wide as its widest cell."""

from __future__ import annotations

from backend.cli.columns import lines_of


def test_the_first_columns_are_flush_left_and_the_others_flush_right():
    rows = [("job", "took"), ("orders", "4.0 s"), ("a", "12 min 5 s")]
    assert lines_of(rows) == ["job           took", "orders       4.0 s", "a       12 min 5 s"]
    assert lines_of(rows, left=2) == ["job     took", "orders  4.0 s", "a       12 min 5 s"]
