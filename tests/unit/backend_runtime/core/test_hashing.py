"""Tests of the stable hash against published values, and of the default number of key groups."""

from __future__ import annotations

import pytest

from backend.runtime.core.hashing import default_max_parallelism, murmur3_32


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
