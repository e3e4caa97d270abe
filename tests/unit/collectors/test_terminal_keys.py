"""Tests of single keys, on a real pseudo-terminal."""

from __future__ import annotations

import os
import pty
import termios
from collections.abc import Iterator

import pytest

from collectors.terminal_keys import read_keys, single_keys


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    ours, theirs = pty.openpty()
    yield ours, theirs
    os.close(ours)
    os.close(theirs)


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        (b"q", ["q"]),
        (b"<>", ["<", ">"]),
        (b"\x1b[A\x1b[Bj", ["up", "down", "down"]),
        (b"\x1b[D\x1b[C,.", ["<", ">", "<", ">"]),
        (b"\xff", ["�"]),
    ],
)
def test_each_key_is_read_without_enter(typed, keys, terminal):
    ours, theirs = terminal
    with single_keys(theirs):
        os.write(ours, typed)
        found: list[str] = []
        while len(found) < len(keys):
            found += read_keys(theirs)

    assert found == keys


def test_the_terminal_is_as_before_also_after_an_error(terminal):
    _, theirs = terminal
    before = termios.tcgetattr(theirs)

    seen = []

    def fail() -> None:
        with single_keys(theirs):
            seen.append(termios.tcgetattr(theirs))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()

    assert seen != [before]
    assert termios.tcgetattr(theirs) == before


def test_an_ended_input_quits():
    reading, writing = os.pipe()
    os.close(writing)
    try:
        assert read_keys(reading) == ["q"]
    finally:
        os.close(reading)
