"""Which source records a derived record came from (DET-10): kept for tests and observers, unread by operators.

A record that one source record became carries that record's origin. One that several became carries the name of a node,
and a node is named by what it holds: the same records folded in the same order give the same name in every attempt, so
that a name in restored state still says what it said. What the names stand for is kept only where someone asks for it.
"""

from __future__ import annotations

from collections import Counter

from backend.runtime.core.prng import mix64

_MERGED = 1 << 62
"""Marks a node; origins of source records stay below."""
NOTHING = _MERGED


class Provenance:
    """Names of nodes, and with ``is_kept`` what each was made of."""

    def __init__(self, *, is_kept: bool) -> None:
        self._is_kept = is_kept
        self._made_of: dict[int, tuple[int, int]] = {}

    def merge(self, node: int, origin: int) -> int:
        """The node of everything in ``node`` and of ``origin``, itself a node or a source record's origin."""
        merged = mix64(node ^ mix64(origin)) & (_MERGED - 1) | _MERGED
        if self._is_kept:
            self._made_of[merged] = (node, origin)
        return merged

    def sources(self, origin: int) -> Counter[int]:
        """The origins of the source records that one record came from, each as often as it went in.

        Raises:
            KeyError: a node was not kept.

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
