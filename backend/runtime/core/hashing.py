"""The stable hash that distributes keys: 32-bit MurmurHash3, by Appleby, in the public domain (DET-8)."""

from __future__ import annotations

_MASK = 0xFFFFFFFF


def murmur3_32(data: bytes, seed: int = 0) -> int:
    """Return the 32-bit MurmurHash3 of ``data``, in the variant for x86."""
    h = seed
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * 0xCC9E2D51 & _MASK
        k = ((k << 15) | (k >> 17)) * 0x1B873593 & _MASK
        h ^= k
        h = ((h << 13) | (h >> 19)) & _MASK
        h = (h * 5 + 0xE6546B64) & _MASK
    tail = data[whole:]
    if tail:
        k = int.from_bytes(tail, "little") * 0xCC9E2D51 & _MASK
        h ^= ((k << 15) | (k >> 17)) * 0x1B873593 & _MASK
    h ^= len(data)
    h ^= h >> 16
    h = h * 0x85EBCA6B & _MASK
    h ^= h >> 13
    h = h * 0xC2B2AE35 & _MASK
    return h ^ (h >> 16)


def key_group(key: int, max_parallelism: int) -> int:
    """Return the key group of a key (PT-2). The key is hashed as a signed number of eight bytes, little-endian."""
    return _murmur3_of_eight(key) % max_parallelism


def _murmur3_of_eight(key: int) -> int:
    """Return ``murmur3_32`` of a number's eight bytes. The loop is unrolled because it runs for every hashed record."""
    k = (key & _MASK) * 0xCC9E2D51 & _MASK
    h = ((k << 15) | (k >> 17)) * 0x1B873593 & _MASK
    h = ((h << 13) | (h >> 19)) & _MASK
    h = (h * 5 + 0xE6546B64) & _MASK
    k = (key >> 32 & _MASK) * 0xCC9E2D51 & _MASK
    h ^= ((k << 15) | (k >> 17)) * 0x1B873593 & _MASK
    h = ((h << 13) | (h >> 19)) & _MASK
    h = (h * 5 + 0xE6546B64) & _MASK ^ 8
    h ^= h >> 16
    h = h * 0x85EBCA6B & _MASK
    h ^= h >> 13
    h = h * 0xC2B2AE35 & _MASK
    return h ^ (h >> 16)


def owner_of_group(group: int, parallelism: int, max_parallelism: int) -> int:
    """Return the subtask that owns a key group (PT-2)."""
    return group * parallelism // max_parallelism


def groups_of(subtask: int, parallelism: int, max_parallelism: int) -> range:
    """Return the key groups of one subtask (PT-2). Every group from 0 to ``max_parallelism`` - 1 has one owner."""
    start = -(-subtask * max_parallelism // parallelism)
    end = ((subtask + 1) * max_parallelism - 1) // parallelism
    return range(start, end + 1)


def default_max_parallelism(parallelism: int) -> int:
    """Return Flink's default maximum parallelism for a vertex with this parallelism (PT-3)."""
    wanted = parallelism + parallelism // 2
    return min(max(1 << (wanted - 1).bit_length(), 128), 32768)
