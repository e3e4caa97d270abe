"""Tests of ``lazy``: a property is computed once, and its class still shows the descriptor."""

from __future__ import annotations

from backend.analysis.numbers.lazy import lazy


class Counted:
    def __init__(self):
        self.count = 0

    @lazy
    def value(self):
        """The value."""
        self.count += 1
        return self.count


def test_the_value_is_computed_once_per_object():
    first, second = Counted(), Counted()

    assert (first.value, first.value, first.count) == (1, 1, 1)
    assert second.count == 0
    assert isinstance(Counted.value, lazy)
    assert Counted.value.__doc__ == "The value."
