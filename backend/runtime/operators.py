"""What the operators of a vertex do to records, and what they keep: sources, maps, keyed stages, the sink.

An operator reads key and value of a record and passes its origin on; it never decides by the origin (DET-10). Every
``snapshot`` is bytes and every ``restore`` reads them back: nothing of a failed attempt survives in memory.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Protocol

from backend.runtime.elements import Record, origin_of
from backend.runtime.graph import VertexSpec
from backend.runtime.prng import mix64
from backend.runtime.storage import Ledger

_OFFSET = struct.Struct("<q")


class Operator(Protocol):
    """One operator of a chain."""

    def process(self, record: Record) -> list[Record]:
        """The records that come out of one record."""
        ...

    def snapshot(self, checkpoint_id: int) -> bytes:
        """Its state, to be restored from."""
        ...

    def restore(self, data: bytes, checkpoint_id: int) -> None:
        """Take up a state; the operator is new."""
        ...

    def complete(self, checkpoint_id: int) -> None:
        """The checkpoint is complete (CO-7)."""
        ...

    @property
    def state_bytes(self) -> int:
        """Size of its state as the store counts it."""
        ...


class Source:
    """One subtask's split: record n is the same in every run (SRC-1, SRC-3), and is there from n / rate on.

    That is how a log behaves: after a restore the records that came meanwhile are waiting.
    """

    def __init__(self, spec: VertexSpec, subtask: int, *, seed: int, started_us: int) -> None:
        self.offset = 0
        self._subtask = subtask
        self._seed = seed
        self._keys = spec.keys
        self._hot_limit = int(spec.hot_key_ratio * (1 << 32))
        self._size = spec.record_bytes
        self._started_us = started_us
        rate = spec.rate / spec.parallelism
        self._period_us = 1e6 / rate if rate > 0 else 0.0
        share, more = divmod(spec.limit or 0, spec.parallelism)
        self.limit = None if spec.limit is None else share + (subtask < more)

    def due_us(self) -> int | None:
        """When the next record is there; None after the last."""
        if self.limit is not None and self.offset >= self.limit:
            return None
        return self._started_us + int(self.offset * self._period_us)

    def poll(self) -> Record:
        """The next record; the offset moves with it."""
        offset = self.offset
        draw = mix64(self._seed ^ mix64(self._subtask << 44 | offset))
        is_hot = (draw >> 32) < self._hot_limit
        key = 0 if is_hot else (draw & 0xFFFFFFFF) % self._keys
        due_us = self._started_us + int(offset * self._period_us)
        self.offset = offset + 1
        return Record(key, origin_of(self._subtask, offset), due_us, 0, self._size)

    def process(self, record: Record) -> list[Record]:
        """A source has no input."""
        raise AssertionError("a source has no input")

    def snapshot(self, checkpoint_id: int) -> bytes:
        """The next offset."""
        return _OFFSET.pack(self.offset)

    def restore(self, data: bytes, checkpoint_id: int) -> None:
        """Seek to the stored offset (RC-7)."""
        (self.offset,) = _OFFSET.unpack(data)

    def complete(self, checkpoint_id: int) -> None:
        """Nothing to commit."""

    @property
    def state_bytes(self) -> int:
        """One offset."""
        return _OFFSET.size


class Map:
    """Passes each record on, ``fan_out`` times."""

    def __init__(self, spec: VertexSpec) -> None:
        self._fan_out = spec.fan_out
        self._size = spec.record_bytes

    def process(self, record: Record) -> list[Record]:
        """The copies differ in nothing but their place."""
        return [record] if self._fan_out == 1 else [record] * self._fan_out

    def snapshot(self, checkpoint_id: int) -> bytes:
        """No state."""
        return b""

    def restore(self, data: bytes, checkpoint_id: int) -> None:
        """No state."""

    def complete(self, checkpoint_id: int) -> None:
        """Nothing to commit."""

    @property
    def state_bytes(self) -> int:
        """No state."""
        return 0


class Keyed:
    """Counts the records of each key and puts the count into the record: every loss or double shows downstream."""

    def __init__(self, spec: VertexSpec) -> None:
        self.counts: dict[int, int] = {}
        self._value_bytes = spec.state_value_bytes

    def process(self, record: Record) -> list[Record]:
        """The record with its key's count as its value."""
        count = self.counts.get(record.key, 0) + 1
        self.counts[record.key] = count
        record.value = count
        return [record]

    def snapshot(self, checkpoint_id: int) -> bytes:
        """Pairs of key and count."""
        flat = [number for pair in self.counts.items() for number in pair]
        return struct.pack(f"<{len(flat)}q", *flat)

    def restore(self, data: bytes, checkpoint_id: int) -> None:
        """Read the pairs back."""
        flat = struct.unpack(f"<{len(data) // 8}q", data)
        self.counts = dict(zip(flat[::2], flat[1::2], strict=True))

    def complete(self, checkpoint_id: int) -> None:
        """Nothing to commit."""

    @property
    def state_bytes(self) -> int:
        """Key and count, and the declared size of the rest of a value."""
        return len(self.counts) * (16 + self._value_bytes)


class TransactionalSink:
    """Writes into a transaction of an external ledger; commits once a checkpoint with it is complete (SNK-1 to 5)."""

    def __init__(self, ledger: Ledger, *, namespace: str, attempt: int) -> None:
        self._ledger = ledger
        self._namespace = namespace
        self._attempt = attempt
        self._opened = 0
        self._open = self._begin()
        self._prepared: dict[int, list[str]] = {}

    def process(self, record: Record) -> list[Record]:
        """Into the open transaction."""
        self._ledger.write(self._open, record)
        return []

    def snapshot(self, checkpoint_id: int) -> bytes:
        """Flush, pre-commit, remember under the checkpoint, open the next (SNK-1)."""
        self._ledger.prepare(self._open)
        self._prepared[checkpoint_id] = [self._open]
        self._open = self._begin()
        uncommitted = [t for ids in self._prepared.values() for t in ids]
        return json.dumps(uncommitted).encode()

    def restore(self, data: bytes, checkpoint_id: int) -> None:
        """Commit what the checkpoint holds, abort every other transaction of this subtask (SNK-3)."""
        held: list[str] = json.loads(data) if data else []
        for transaction in held:
            self._ledger.commit(transaction)
        self._ledger.abort_others(self._namespace, keep=self._open)

    def complete(self, checkpoint_id: int) -> None:
        """Commit every transaction remembered under this or an earlier checkpoint, in order (SNK-2)."""
        for remembered in sorted(k for k in self._prepared if k <= checkpoint_id):
            for transaction in self._prepared[remembered]:
                self._ledger.commit(transaction)
            del self._prepared[remembered]

    @property
    def state_bytes(self) -> int:
        """One line a transaction not yet committed."""
        return 40 * (1 + sum(map(len, self._prepared.values())))

    def _begin(self) -> str:
        self._opened += 1
        transaction = f"{self._namespace}/{self._attempt}/{self._opened}"
        self._ledger.begin(transaction)
        return transaction


def chain_of(
    spec: VertexSpec, subtask: int, *, seed: int, attempt: int, started_us: int, ledger: Ledger
) -> tuple[Operator, ...]:
    """The operators of one subtask, first to last."""
    operators: list[Operator] = []
    if spec.kind.is_source:
        operators.append(Source(spec, subtask, seed=seed, started_us=started_us))
    elif spec.kind.is_keyed:
        operators.append(Keyed(spec))
    else:
        operators.append(Map(spec))
    if spec.kind.has_sink:
        operators.append(TransactionalSink(ledger, namespace=f"{spec.id}/{subtask}", attempt=attempt))
    return tuple(operators)


def factor_of(factors: Mapping[int, float], subtask: int) -> float:
    """The factor of one subtask, 1 where none is set."""
    return factors.get(subtask, 1.0)
