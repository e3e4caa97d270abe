"""Computes which source records a derived record came from (DET-10). Only tests and observers use this.

A record derived from one source record carries the origin of that record. A record derived from several source records
carries the name of a node, which stands for all of them. The name is a hash of the node's contents: the same records
merged in the same order give the same name in every attempt, so a name in restored state stays valid. The contents of
nodes are stored only on request.
"""

from __future__ import annotations

from collections import Counter

from backend.runtime.core.prng import mix64

_MERGED = 1 << 62
"""The bit that marks the name of a node. Origins of source records are lower than this value."""
NOTHING = _MERGED


class Provenance:
    """Computes the names of nodes. A node stands for the source records that a derived record came from.

    With ``is_kept``, the contents of each node are also stored.
    """

    def __init__(self, *, is_kept: bool) -> None:
        self._is_kept = is_kept
        self._made_of: dict[int, tuple[int, int]] = {}

    def merge(self, node: int, origin: int) -> int:
        """Return the name of the node that merges ``node`` with ``origin``, which may be a node's name as well."""
        merged = mix64(node ^ mix64(origin)) & (_MERGED - 1) | _MERGED
        if self._is_kept:
            self._made_of[merged] = (node, origin)
        return merged

    def sources(self, origin: int) -> Counter[int]:
        """Return the origins of the source records that a record came from, with their counts.

        Raises:
            KeyError: the contents of a node were not stored.
        """
        counter: Counter[int] = Counter()
        waiting = [origin]
        while waiting:
            at = waiting.pop()
            if at < _MERGED:
                counter[at] += 1
            elif at != NOTHING:
                waiting.extend(self._made_of[at])
        return counter
