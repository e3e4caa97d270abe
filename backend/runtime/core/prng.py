"""Named streams of pseudo-random numbers (DET-3).

Each purpose has its own stream, so a number taken from one stream does not change the numbers of another.

The generator is SplitMix64 (Steele, Lea, Flood 2014). It is implemented here because Python does not promise the same
sequence from its own generator in every version.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from backend.runtime.core.hashing import murmur3_32

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15


def mix64(value: int) -> int:
    """Scramble 64 bits. Different inputs give different results."""
    z = (value + _GAMMA) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def mix64_pair(value: int, inner: int) -> int:
    """Return ``mix64(value ^ mix64(inner))``. The calls are inlined because this runs for every record."""
    z = (inner + _GAMMA) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    z = ((value ^ z ^ (z >> 31)) + _GAMMA) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


LANES = 256
"""The number of numbers that are scrambled together.

They share one long integer, in which each has 128 bits, so that the product of two 64-bit numbers fits.
"""
_LANE_BITS = 128
_ONES = sum(1 << _LANE_BITS * lane for lane in range(LANES))
_ALL = _MASK * _ONES
_GAMMAS = _GAMMA * _ONES
_COUNTED = sum(lane << _LANE_BITS * lane for lane in range(LANES))
# To sum the lanes, the upper half of the integer is added to its lower half, until one lane is left.
_HALVES = [(bits, (1 << bits) - 1) for bits in (_LANE_BITS * LANES >> n for n in range(1, LANES.bit_length()))]
_FILL = (0,) * LANES
# Below this count, scrambling one number after another is faster than scrambling all lanes together.
_LANES_WORTH = LANES // 8
_IN_LANES = struct.Struct("<" + "q8x" * LANES)
_FROM_LANES = struct.Struct("<" + "Q8x" * LANES)


def mix64_run(value: int, first: int) -> tuple[int, ...]:
    """Return ``mix64_pair(value, first + n)`` for each n from 0 to ``LANES`` - 1."""
    return _from_lanes(_mix_lanes(_mix_lanes(first * _ONES + _COUNTED) ^ (value & _MASK) * _ONES))


def mix64_sum(values: Sequence[int], inners: Sequence[int]) -> int:
    """Return the sum of ``mix64_pair`` over the pairs of signed 64-bit numbers of both sequences, modulo 2**64."""
    total = 0
    for at in range(0, len(values), LANES):
        some, count = values[at : at + LANES], min(LANES, len(values) - at)
        if count < _LANES_WORTH:
            return total + sum(map(mix64_pair, some, inners[at:])) & _MASK
        # Unused lanes are filled with zeros and are left out of the sum.
        fill = _FILL[count:]
        outer, inner = (
            int.from_bytes(_IN_LANES.pack(*part, *fill), "little") for part in (some, inners[at : at + LANES])
        )
        total += _sum_of_lanes(_mix_lanes(_mix_lanes(inner) ^ outer), count)
    return total & _MASK


def _mix_lanes(z: int) -> int:
    """Apply ``mix64`` in every lane. The masks remove the bits that a shift brings in from the next lane."""
    z = (z + _GAMMAS) & _ALL
    z = ((z ^ (z >> 30 & _ALL)) * 0xBF58476D1CE4E5B9) & _ALL
    z = ((z ^ (z >> 27 & _ALL)) * 0x94D049BB133111EB) & _ALL
    return z ^ (z >> 31 & _ALL)


def _from_lanes(z: int) -> tuple[int, ...]:
    return _FROM_LANES.unpack(z.to_bytes(16 * LANES, "little"))


def _sum_of_lanes(z: int, count: int) -> int:
    """Return the sum of the first ``count`` lanes. A lane has enough bits for the sum."""
    if count < LANES:
        z &= (1 << _LANE_BITS * count) - 1
    for half, low in _HALVES:
        z = (z >> half) + (z & low)
    return z


class Stream:
    """One stream of pseudo-random numbers, determined by a seed and the name of its purpose."""

    __slots__ = ("_state",)

    def __init__(self, seed: int, purpose: str) -> None:
        name = purpose.encode()
        self._state = mix64(seed ^ (murmur3_32(name, 1) << 32 | murmur3_32(name, 2)))

    def below(self, bound: int) -> int:
        """Return an integer in [0, bound)."""
        # ``mix64`` is inlined because a fuzzed schedule takes one number for every event.
        self._state = z = (self._state + _GAMMA) & _MASK
        z = (z + _GAMMA) & _MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return (z ^ (z >> 31)) % bound

    def between(self, low: int, high: int) -> int:
        """Return an integer in [low, high]."""
        return low + self.below(high - low + 1)
