"""What the state of a counting job must be at a checkpoint, computed from its sources alone (INV-4).

A job counts each key's records. At any consistent cut, what the sources have emitted of a key is what its state has
counted, what timers hold of it, and what is in flight of it.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from backend.runtime.channel import ChannelKey
from backend.runtime.completed import Completed
from backend.runtime.elements import Record, decode, wire_bytes
from backend.runtime.graph import VertexKind
from backend.runtime.kernel import Engine
from backend.runtime.measures import SubtaskSnapshot
from backend.runtime.operators import Keyed
from backend.runtime.sources import Source
from backend.runtime.timed_operators import TimerBuffer

_KEYED = (VertexKind.KEYED, VertexKind.KEYED_SINK)
_TIMERS = (VertexKind.TIMER, VertexKind.TIMER_SINK)
_FIELDS = 4


class CountingOracle:
    """Of a job with one path from its sources to one counting stage, behind which nothing is queued."""

    def __init__(self, engine: Engine, *, is_exact: bool) -> None:
        self._engine = engine
        self._is_exact = is_exact
        self._keys: dict[tuple[int, int], tuple[Source, list[int]]] = {}

    def problem(self, completed: Completed) -> str | None:
        """What the state of a checkpoint counts wrongly; None where it is right."""
        emitted: Counter[int] = Counter()
        found = _in_flight(completed)
        vertices = self._engine.env.graph.vertices
        for (v, subtask), snapshot in completed.snapshots.items():
            spec = vertices[v]
            if spec.kind.is_source:
                offset = _offset(v, subtask, snapshot, self._engine)
                emitted.update(self._first(v, subtask, offset))
            elif spec.kind in _KEYED:
                keyed = Keyed(spec, subtask)
                keyed.restore(snapshot.operators[0], 0)
                found += Counter(keyed.counts)
            elif spec.kind in _TIMERS:
                timers = TimerBuffer(spec, subtask)
                timers.restore(snapshot.operators[0], 0)
                found += Counter(timers._counts.held)
                found += Counter({key: len(rows) // _FIELDS for key, rows in timers._held.held.items()})
        missing, surplus = emitted - found, found - emitted
        if not missing and (not surplus or not self._is_exact):
            return None
        return f"checkpoint {completed.record.id} misses {dict(missing)} and has {dict(surplus)} too many, by key"

    def _first(self, vertex: int, subtask: int, count: int) -> list[int]:
        """The keys of a source's first records."""
        if (vertex, subtask) not in self._keys:
            spec = self._engine.env.graph.vertices[vertex]
            source = Source(spec, subtask, seed=self._engine.env.seed ^ vertex, started_us=0, vertex=vertex)
            self._keys[vertex, subtask] = (source, [])
        source, keys = self._keys[vertex, subtask]
        while len(keys) < count:
            keys.append(source.poll().key)
        return keys[:count]


def _offset(vertex: int, subtask: int, snapshot: SubtaskSnapshot, engine: Engine) -> int:
    source = Source(engine.env.graph.vertices[vertex], subtask, seed=0, started_us=0, vertex=vertex)
    source.restore(snapshot.operators[0], 0)
    return source.offset


def _in_flight(completed: Completed) -> Counter[int]:
    """Records by key among the persisted bytes; the receiver's side of a channel begins what the sender's ends."""
    by_channel: defaultdict[ChannelKey, bytes] = defaultdict(bytes)
    for side in ("inputs", "outputs"):
        for snapshot in completed.snapshots.values():
            for key, chunks in getattr(snapshot.channels, side).items():
                by_channel[key] += b"".join(chunks)
    keys: Counter[int] = Counter()
    for data in by_channel.values():
        at = 0
        while (element := decode(data, at)) is not None:
            at += wire_bytes(element)
            if isinstance(element, Record):
                keys[element.key] += 1
    return keys
