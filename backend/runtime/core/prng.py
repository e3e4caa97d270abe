"""Named pseudo-random streams: one a purpose, so that a draw in one place never shifts another (DET-3).

SplitMix64 (Steele, Lea, Flood 2014), written here because the runtime may not depend on the library's generator, whose
sequence is not promised across Python versions.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from backend.runtime.core.hashing import murmur3_32

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15


def mix64(value: int) -> int:
    """A bijective scramble of 64 bits: equal inputs, equal outputs."""
    z = (value + _GAMMA) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def mix64_pair(value: int, inner: int) -> int:
    """``mix64(value ^ mix64(inner))`` in one call: sources and ledgers scramble every record so."""
    z = (inner + _GAMMA) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    z = ((value ^ z ^ (z >> 31)) + _GAMMA) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


LANES = 256
"""How many numbers are scrambled at once: each lies in a lane of 128 bits of one long number, which holds a product."""
_LANE_BITS = 128
_ONES = sum(1 << _LANE_BITS * lane for lane in range(LANES))
_ALL = _MASK * _ONES
_GAMMAS = _GAMMA * _ONES
_COUNTED = sum(lane << _LANE_BITS * lane for lane in range(LANES))
# How the lanes are added up: the upper half to the lower one, until one is left.
_HALVES = [(bits, (1 << bits) - 1) for bits in (_LANE_BITS * LANES >> n for n in range(1, LANES.bit_length()))]
_FILL = (0,) * LANES
# With fewer, all lanes together cost more than one by one.
_LANES_WORTH = LANES // 8
_IN_LANES = struct.Struct("<" + "q8x" * LANES)
_FROM_LANES = struct.Struct("<" + "Q8x" * LANES)


def mix64_run(value: int, first: int) -> tuple[int, ...]:
    """``mix64_pair(value, first + n)`` for ``LANES`` numbers n from 0 on."""
    return _from_lanes(_mix_lanes(_mix_lanes(first * _ONES + _COUNTED) ^ (value & _MASK) * _ONES))


def mix64_sum(values: Sequence[int], inners: Sequence[int]) -> int:
    """The sum of ``mix64_pair`` over both, signed numbers of 64 bits."""
    total = 0
    for at in range(0, len(values), LANES):
        some, count = values[at : at + LANES], min(LANES, len(values) - at)
        if count < _LANES_WORTH:
            return total + sum(map(mix64_pair, some, inners[at:])) & _MASK
        # Lanes that nothing is left for are filled, and not counted.
        fill = _FILL[count:]
        outer, inner = (
            int.from_bytes(_IN_LANES.pack(*part, *fill), "little") for part in (some, inners[at : at + LANES])
        )
        total += _sum_of_lanes(_mix_lanes(_mix_lanes(inner) ^ outer), count)
    return total & _MASK


def _mix_lanes(z: int) -> int:
    """``mix64`` in every lane; what a shift brings in from the next lane is masked away."""
    z = (z + _GAMMAS) & _ALL
    z = ((z ^ (z >> 30 & _ALL)) * 0xBF58476D1CE4E5B9) & _ALL
    z = ((z ^ (z >> 27 & _ALL)) * 0x94D049BB133111EB) & _ALL
    return z ^ (z >> 31 & _ALL)


def _from_lanes(z: int) -> tuple[int, ...]:
    return _FROM_LANES.unpack(z.to_bytes(16 * LANES, "little"))


def _sum_of_lanes(z: int, count: int) -> int:
    """Of the first so many: a lane has room for the sum."""
    if count < LANES:
        z &= (1 << _LANE_BITS * count) - 1
    for half, low in _HALVES:
        z = (z >> half) + (z & low)
    return z


class Stream:
    """One stream of numbers, fixed by a seed and the purpose's name."""

    __slots__ = ("_state",)

    def __init__(self, seed: int, purpose: str) -> None:
        name = purpose.encode()
        self._state = mix64(seed ^ (murmur3_32(name, 1) << 32 | murmur3_32(name, 2)))

    def next64(self) -> int:
        """The next 64 bits."""
        self._state = (self._state + _GAMMA) & _MASK
        return mix64(self._state)

    def below(self, bound: int) -> int:
        """A whole number in [0, bound)."""
        # ``next64`` without its calls: a fuzzed schedule draws one for every event.
        self._state = z = (self._state + _GAMMA) & _MASK
        z = (z + _GAMMA) & _MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return (z ^ (z >> 31)) % bound

    def between(self, low: int, high: int) -> int:
        """A whole number in [low, high]."""
        return low + self.below(high - low + 1)
