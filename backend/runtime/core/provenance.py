"""Which source records a derived record came from (DET-10). Tests and observers read it; operators do not.

A record derived from one source record carries that record's origin. A record derived from several carries the name of
a node. The name is a hash of the node's contents: the same records merged in the same order give the same name in every
attempt, so a name in restored state stays valid. What a name stands for is kept only on request.
"""

from __future__ import annotations

from collections import Counter

from backend.runtime.core.prng import mix64

_MERGED = 1 << 62
"""The bit that marks a node. Origins of source records stay below it."""
NOTHING = _MERGED


class Provenance:
    """Computes names of nodes. With ``is_kept`` it also keeps what each node was merged from."""

    def __init__(self, *, is_kept: bool) -> None:
        self._is_kept = is_kept
        self._made_of: dict[int, tuple[int, int]] = {}

    def merge(self, node: int, origin: int) -> int:
        """Return the name of ``node`` merged with ``origin``, which is a node or a source record's origin."""
        merged = mix64(node ^ mix64(origin)) & (_MERGED - 1) | _MERGED
        if self._is_kept:
            self._made_of[merged] = (node, origin)
        return merged

    def sources(self, origin: int) -> Counter[int]:
        """Return the origins of the source records that one record came from, with their counts.

        Raises:
            KeyError: the contents of a node were not kept.

        """
        found: Counter[int] = Counter()
        waiting = [origin]
        while waiting:
            at = waiting.pop()
            if at < _MERGED:
                found[at] += 1
            elif at != NOTHING:
                waiting.extend(self._made_of[at])
        return found
