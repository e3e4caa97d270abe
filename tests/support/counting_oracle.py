"""Compute the state that a counting job must have at a checkpoint, from its sources alone (INV-4, INV-6).

The job counts the records of each key. At any consistent cut, two numbers are equal for each key. The first is the
number of records that the sources emitted, plus intended duplicates and minus intended losses. The second is the
number of records counted in the state, held by timers or in flight. The oracle reads the source records from its own
copies of the splits.
"""

from __future__ import annotations

import struct
from collections import Counter, defaultdict
from collections.abc import Iterable

from backend.runtime.core.elements import Record
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job.graph import VertexKind, VertexSpec
from backend.runtime.measure.measures import Finished, SubtaskSnapshot
from backend.runtime.operators.operators import Keyed
from backend.runtime.operators.sources import Split
from backend.runtime.operators.timed_operators import TimerBuffer
from backend.runtime.snapshot.completed import Completed
from tests.support.channel_oracle import by_key, records_in_flight

_KEYED = (VertexKind.KEYED, VertexKind.KEYED_SINK)
_TIMERS = (VertexKind.TIMER, VertexKind.TIMER_SINK)
_FIELDS = 4
_SPLIT = struct.Struct("<qq")
"""The encoding of an entry in a source's state: the number of a split, and the number of its next record."""


class SourceRecords:
    """The records of every split of a job's sources. They are the same in every run."""

    def __init__(self, engine: JobEngine) -> None:
        self._engine = engine
        self._polled: dict[tuple[int, int], tuple[Split, list[Record]]] = {}
        self._keys: defaultdict[tuple[int, int], list[int]] = defaultdict(list)

    def first(self, spec: VertexSpec, vertex: int, split: int, count: int) -> list[Record]:
        """Return the first ``count`` records of a split."""
        number = vertex if spec.number is None else spec.number
        if (number, split) not in self._polled:
            seed = self._engine.env.seed ^ number
            self._polled[number, split] = (Split(spec, split, seed=seed, vertex=number), [])
        source, records = self._polled[number, split]
        while len(records) < count:
            records.append(source.poll())
        return records[:count]

    def keys(self, spec: VertexSpec, vertex: int, split: int, count: int) -> list[int]:
        """Return the keys of the first ``count`` records of a split."""
        known = self._keys[vertex, split]
        if len(known) < count:
            known += (record.key for record in self.first(spec, vertex, split, count)[len(known) :])
        return known[:count]

    def of_bounded(self) -> Iterable[tuple[str, Record]]:
        """Yield (source, record) for every record of a bounded job."""
        for v, spec in enumerate(self._engine.env.graph.vertices):
            if spec.kind.is_source:
                for split in range(spec.split_count):
                    limit = Split(spec, split, seed=0).limit
                    assert limit is not None, f"{spec.id} has no end"
                    yield from ((spec.id, record) for record in self.first(spec, v, split, limit))


class CountingOracle:
    """Checks a job with one path from its sources to one counting stage, and without queues after that stage."""

    def __init__(self, records: SourceRecords) -> None:
        self._records = records

    def problem(self, completed: Completed, *, doubled: Counter[int], lost: Counter[int]) -> str | None:
        """Describe the wrong counts in a checkpoint's state, or return None if all are right.

        ``doubled`` and ``lost`` have the number of intended duplicates and losses for each key.
        """
        expected = doubled.copy()
        found = by_key(records_in_flight(completed.snapshots.values())) + lost
        vertices = completed.record.graph.vertices
        for v, spec in enumerate(vertices):
            if spec.kind.is_source:
                own = [completed.snapshots[v, subtask] for subtask in range(spec.parallelism)]
                expected += self._emitted(v, spec, own)
        for (v, subtask), snapshot in completed.snapshots.items():
            spec = vertices[v]
            if not spec.kind.is_source and snapshot.finished in (Finished.TASK, Finished.RESTORED):
                # Check nothing here: a finished subtask has no counts in the state. The check of the committed output
                # covers them.
                return None
            if spec.kind in _KEYED:
                keyed = Keyed(spec, subtask)
                keyed.restore(snapshot.operators[0], 0)
                found += Counter(keyed.counts)
            elif spec.kind in _TIMERS:
                timers = TimerBuffer(spec, subtask)
                timers.restore(snapshot.operators[0], 0)
                found += Counter(timers._counts.held)
                found += Counter({key: len(rows) // _FIELDS for key, rows in timers._held.held.items()})
        missing, surplus = expected - found, found - expected
        if not missing and not surplus:
            return None
        return f"checkpoint {completed.record.id} misses {dict(missing)} and has {dict(surplus)} too many, by key"

    def _emitted(self, vertex: int, spec: VertexSpec, snapshots: list[SubtaskSnapshot]) -> Counter[int]:
        keys = Counter[int]()
        left = set(range(spec.split_count)) if any(s.finished is not Finished.NO for s in snapshots) else set[int]()
        for snapshot in snapshots:
            for entry in snapshot.operators[0].entries("splits"):
                split, offset = _SPLIT.unpack(entry)
                left.discard(split)
                keys.update(self._records.keys(spec, vertex, split, offset))
        for split in left:
            # The subtask that read this split had finished, so it has emitted all of its records.
            limit = Split(spec, split, seed=0).limit
            assert limit is not None, f"{spec.id} has finished, but has no end"
            keys.update(self._records.keys(spec, vertex, split, limit))
        return keys
