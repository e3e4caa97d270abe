"""Values are kept for their owners and their key, only within a block, and only for the newest owners."""

from __future__ import annotations

from backend.analysis.numbers import cache as module
from backend.analysis.numbers.cache import kept, kept_values


class _Owner:
    """An owner without a hash by its value."""


def test_a_value_is_computed_once_for_its_owners_and_its_key():
    one, other = _Owner(), _Owner()
    computed = []

    def value(*words):
        computed.append(words)
        return words

    with kept_values():
        for _ in range(2):
            assert kept((one,), "a", lambda: value(one, "a")) == (one, "a")
            assert kept((one,), "b", lambda: value(one, "b")) == (one, "b")
            assert kept((other,), "a", lambda: value(other, "a")) == (other, "a")
            assert kept((one, other), "a", lambda: value(one, other, "a")) == (one, other, "a")
    assert len(computed) == 4


def test_nothing_is_kept_outside_the_block():
    owner = _Owner()
    values = iter(range(9))

    assert kept((owner,), "a", lambda: next(values)) == 0
    with kept_values():
        assert [kept((owner,), "a", lambda: next(values)) for _ in range(2)] == [1, 1]
    assert kept((owner,), "a", lambda: next(values)) == 2
    with kept_values():
        assert kept((owner,), "a", lambda: next(values)) == 3


def test_only_the_values_of_the_newest_owners_are_kept(monkeypatch):
    monkeypatch.setattr(module, "_OWNERS_MAX", 2)
    owners = [_Owner() for _ in range(3)]
    computed = []
    with kept_values():
        for place in (0, 1, 2, 2, 1, 0):
            kept((owners[place],), "a", lambda place=place: computed.append(place))
    assert computed == [0, 1, 2, 0]
