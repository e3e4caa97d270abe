"""The stable hash against published vectors, key groups, durations and sizes."""

from __future__ import annotations

import pytest

from backend.runtime.core.hashing import default_max_parallelism, murmur3_32
from backend.runtime.core.prng import Stream, mix64
from backend.runtime.core.units import duration_us, size_bytes


@pytest.mark.parametrize(
    ("data", "seed", "expected"),
    [
        (b"", 0, 0),
        (b"", 1, 0x514E28B7),
        (b"", 0xFFFFFFFF, 0x81F16F39),
        (b"\xff\xff\xff\xff", 0, 0x76293B50),
        (b"!Ce\x87", 0, 0xF55B516B),
        (b"!Ce\x87", 0x5082EDEE, 0x2362F9DE),
        (b"!Ce", 0, 0x7E4A8634),
        (b"!C", 0, 0xA0F7B07A),
        (b"!", 0, 0x72661CF4),
        (b"Hello, world!", 0x9747B28C, 0x24884CBA),
    ],
)
def test_murmur3_gives_the_published_values(data: bytes, seed: int, expected: int) -> None:
    assert murmur3_32(data, seed) == expected


@pytest.mark.parametrize(("parallelism", "expected"), [(1, 128), (85, 128), (86, 256), (200, 512), (30_000, 32768)])
def test_the_default_maximum_parallelism_is_flinks(parallelism: int, expected: int) -> None:
    assert default_max_parallelism(parallelism) == expected


def test_splitmix_gives_the_published_sequence() -> None:
    # The reference implementation's first outputs from state 0.
    assert mix64(0) == 0xE220A8397B1DCDAF


def test_streams_of_two_purposes_differ_and_repeat() -> None:
    first = [Stream(1, "a").next64() for _ in range(2)]
    assert first[0] == first[1]
    assert Stream(1, "b").next64() != first[0]
    draws = [Stream(3, "c").between(5, 7) for _ in range(1)] + [s.between(5, 7) for s in [Stream(4, "c")] * 50]
    assert set(draws) == {5, 6, 7}


@pytest.mark.parametrize(
    ("text", "expected"),
    [("5 s", 5_000_000), ("250ms", 250_000), ("10 min", 600_000_000), ("7", 7_000), ("1.5s", 1_500_000)],
)
def test_durations_are_read(text: str, expected: int) -> None:
    assert duration_us(text) == expected


@pytest.mark.parametrize(("text", "expected"), [("32 kb", 32768), ("1mb", 1 << 20), ("7", 7)])
def test_sizes_are_read(text: str, expected: int) -> None:
    assert size_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "s", "-1 s", "1 fortnight", "1 s 2", "٣ s", "1" * 50, "nan"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        duration_us(text)
