"""Tests of the count of wrong tokens per address: the limit, the waiting time, and the bound on memory."""

from __future__ import annotations

import pytest

from backend.access import attempts
from backend.access.attempts import WINDOW_S, WRONG_MAX, Attempts


class Time:
    """A clock that the test advances."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def _tried(address, count, time=None):
    made = Attempts(time or Time())
    for number in range(count):
        made.note_wrong(address, f"guess {number}")
    return made


def test_another_address_is_not_affected():
    made = _tried("10.0.0.1", WRONG_MAX)

    assert made.wait_s("10.0.0.1") > 0
    assert made.wait_s("10.0.0.2") == 0


@pytest.mark.parametrize(("other", "is_damped"), [("2001:db8::2", True), ("2001:db8:0:1::1", False)])
def test_ipv6_addresses_of_one_subscriber_network_count_together(other, is_damped):
    assert (_tried("2001:db8::1", WRONG_MAX).wait_s(other) > 0) is is_damped


def test_the_wait_ends_when_the_oldest_attempt_is_forgotten():
    time = Time()
    made = _tried("", WRONG_MAX, time)
    time.now_s += 20

    assert made.wait_s("") == WINDOW_S - 20
    time.now_s += WINDOW_S - 20
    assert made.wait_s("") == 0


def test_the_count_of_remembered_addresses_is_bounded(monkeypatch):
    monkeypatch.setattr(attempts, "_ADDRESSES_MAX", 3)
    made = Attempts()
    for number in range(10):
        made.note_wrong(f"10.0.0.{number}", "guess")

    assert len(made._wrong) == 3
