"""Named pseudo-random streams: one a purpose, so that a draw in one place never shifts another (DET-3).

SplitMix64 (Steele, Lea, Flood 2014), written here because the runtime may not depend on the library's generator, whose
sequence is not promised across Python versions.
"""

from __future__ import annotations

from backend.runtime.hashing import murmur3_32

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

    def unit(self) -> float:
        """A number in [0, 1)."""
        return (self.next64() >> 11) / (1 << 53)
