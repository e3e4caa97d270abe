"""Writes a completed checkpoint as bytes, and reads it back (CK-1 to CK-4).

A checkpoint is one metadata document, and one file for each larger piece of state. The document names the graph, and
each operator with its parallelism and maximum parallelism. For each subtask, it contains handles to the keyed state (by
key group), the operator states (with their modes) and the channel state (by channel). Reading a checkpoint needs no
other input. The document and each file have checksums, and a damaged part is refused.

The keyed state of an operator may be in files that other checkpoints share (runtime.md 5). The document marks such
state, names its base, and lists its files. ``read_checkpoint`` applies the files in order, so that a restore does not
depend on how the state was written (IN-3).

Invariant (INV-7): each file is named by a handle, and the file of each handle exists.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from backend.domain.errors import CorruptCheckpointError
from backend.domain.protocols import TRAITS
from backend.runtime.core.elements import Alignment
from backend.runtime.core.hashing import groups_of
from backend.runtime.job.config import StateBackend
from backend.runtime.job.graph import Graph, VertexSpec
from backend.runtime.measure.measures import (
    ChannelState,
    FileCounts,
    Finished,
    MeasuredCheckpoint,
    SubtaskSnapshot,
    TaskKey,
)
from backend.runtime.measure.requested import RequestedFormat
from backend.runtime.network.buffers import Data
from backend.runtime.network.channel import ChannelKey
from backend.runtime.network.segments import Segment, segment_in
from backend.runtime.operators.changes import consolidated
from backend.runtime.operators.sources import SPLIT_ID
from backend.runtime.operators.state import FileHandle, Increment, OperatorSnapshot, OperatorState, StateMode
from backend.runtime.snapshot.capabilities import SnapshotKind
from backend.runtime.snapshot.finished import VertexEnd, end_of
from backend.runtime.snapshot.shared_files import SharedFiles, groups_in

INLINE_BELOW_BYTES = 20 << 10
"""State smaller than this is stored in the metadata document itself (CK-2). This is Flink's default."""
_CHECKED_BY = b'{"crc":"%08x",'
_CHECK_BYTES = len(_CHECKED_BY % 0)


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A checkpoint as bytes: the metadata document, and the files by name."""

    metadata: bytes
    files: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class VertexState:
    """The state of one vertex. ``subtasks`` are ordered by index."""

    parallelism: int
    max_parallelism: int
    is_keyed: bool
    subtasks: tuple[SubtaskSnapshot, ...]
    splits: tuple[int, ...] | None = None
    """The splits that the coordinator of a source had assigned; None if the vertex is no source."""
    number: int = 0
    """The number from which a source derives its random data. It stays the same if the vertex moves in the graph."""
    ends: Mapping[str, VertexEnd] = field(default_factory=dict)
    """How much of each operator had finished (FN-9 to FN-11). Operators without an entry had not finished."""


@dataclass(frozen=True, slots=True)
class ReadCheckpoint:
    """A checkpoint that was read back from bytes."""

    id: int
    triggered_at_us: int
    alignment: Alignment
    graph: Mapping[str, Any]
    """The fingerprint of the graph: vertices, operators, parallelism, edges, partitioners (CK-1)."""
    vertices: Mapping[str, VertexState]
    repeatable_records: int = 0
    """In at-least-once mode, the number of records that a restore of this checkpoint processes again (ALO-5)."""
    savepoint_format: str | None = None
    """The format of a savepoint; None if this is no savepoint."""

    @property
    def kind(self) -> SnapshotKind:
        """The kind, which decides what a job may change that continues from here (GR-4)."""
        if self.savepoint_format is not None:
            is_native = self.savepoint_format == RequestedFormat.NATIVE
            return SnapshotKind.NATIVE_SAVEPOINT if is_native else SnapshotKind.CANONICAL_SAVEPOINT
        return SnapshotKind.UNALIGNED if self.has_channel_state else SnapshotKind.ALIGNED

    @property
    def name_of_kind(self) -> str:
        """The kind as the checkpoint's page names it: by its mode or protocol, if it is neither aligned nor unaligned.

        A savepoint is named by its format.
        """
        if self.savepoint_format is not None:
            return self.kind.value
        if not self.alignment.is_exactly_once:
            return f"{self.alignment.value} checkpoint"
        protocol = self.alignment.protocol
        return self.kind.value if protocol is None else f"{TRAITS[protocol].family} checkpoint"

    @property
    def has_channel_state(self) -> bool:
        """Whether the checkpoint contains in-flight data."""
        return self.persisted_bytes > 0

    @property
    def ends(self) -> dict[str, VertexEnd]:
        """How much of each operator had finished (FN-9 to FN-11). Operators without an entry had not finished."""
        return {operator: end for state in self.vertices.values() for operator, end in state.ends.items()}

    @property
    def shared_files(self) -> dict[str, FileHandle]:
        """The files that the checkpoint shares with others, by path."""
        operators = (o for v in self.vertices.values() for s in v.subtasks for o in s.operators)
        return {file.path: file for o in operators if o.increment is not None for file in o.increment.files}

    @property
    def persisted_bytes(self) -> int:
        """The number of bytes of in-flight data in the checkpoint."""
        return sum(s.persisted_bytes for v in self.vertices.values() for s in v.subtasks)


def fingerprint(graph: Graph) -> dict[str, Any]:
    """Return the parts of a graph that a checkpoint depends on, as they are stored in the checkpoint."""
    return {
        "vertices": [
            {"id": v.id, "operators": operator_ids(v), "parallelism": v.parallelism, "is_keyed": v.kind.is_keyed}
            for v in graph.vertices
        ],
        "edges": [
            {"source": e.source, "target": e.target, "partitioner": e.partitioner.value, "by_origin": e.by_origin}
            for e in graph.edges
        ],
    }


def operator_ids(vertex: VertexSpec) -> list[str]:
    """Return the stable ids of a vertex's operators, first to last."""
    words = vertex.kind.value.split("+")
    return [f"{vertex.id}:{word}" for word in (["map", "sink"] if words == ["sink"] else words)]


# --- writing ----------------------------------------------------------------------------------------------------------


class _Writer:
    """Stores byte strings: short ones in the metadata document, and each longer one in its own file."""

    def __init__(self, checkpoint_id: int, inline_below_bytes: int, shared: SharedFiles) -> None:
        self.files: dict[str, bytes] = {}
        self._shared = shared
        self._prefix = f"chk-{checkpoint_id}"
        self._inline_below_bytes = inline_below_bytes

    def handle(self, name: str, chunks: Iterable[bytes]) -> dict[str, Any]:
        """Store the chunks together, and return their handle.

        The handle contains the file's name or the bytes themselves, and the offset and length of each chunk.
        """
        parts = list(chunks)
        data = b"".join(parts)
        spans: list[tuple[int, int]] = []
        at = 0
        for part in parts:
            spans.append((at, len(part)))
            at += len(part)
        if len(data) < self._inline_below_bytes:
            return {"inline": base64.b64encode(data).decode(), "size": len(data), "spans": spans}
        file = f"{self._prefix}/{name}"
        self.files[file] = data
        return {"file": file, "size": len(data), "crc": zlib.crc32(data), "spans": spans}

    def segments(self, segments: Iterable[Segment]) -> list[list[Any]]:
        """Name segments of files that other subtasks or other checkpoints use too (FM-1, FM-2)."""
        rows = []
        for segment in segments:
            content = None if segment.path in self.files else segment.store.content(segment.path)
            if content is not None:
                self.files[segment.path] = content
            rows.append([segment.path, segment.at, segment.size_bytes, segment.crc])
        return rows

    def keyed(self, name: str, state: OperatorSnapshot) -> dict[str, Any]:
        """Store the keyed state of one operator, and return its handles, marked as full or incremental (IN-1)."""
        increment = state.increment
        if increment is None:
            return {"groups": list(state.keyed), **self.handle(name, state.keyed.values())}
        for file in increment.files:
            if file in self._shared:
                self.files[file.path] = self._shared.content(file)
        return {
            "kind": "full" if increment.base_id is None else "incremental",
            "base": increment.base_id,
            "backend": increment.backend.value,
            "parts": increment.part_count,
            "shared": [_shared(file) for file in increment.files],
        }


def _shared(file: FileHandle) -> dict[str, Any]:
    return {
        "key": file.key,
        "file": file.path,
        "size": file.size_bytes,
        "changes": file.change_count,
        "crc": file.crc,
        "spans": file.spans,
    }


def write_checkpoint(
    record: MeasuredCheckpoint,
    snapshots: Mapping[TaskKey, SubtaskSnapshot],
    graph: Graph,
    shared: SharedFiles,
    *,
    inline_below_bytes: int = INLINE_BELOW_BYTES,
) -> StoredCheckpoint:
    """Write a completed checkpoint as bytes. ``shared`` has the files that it shares with other checkpoints."""
    writer = _Writer(record.id, inline_below_bytes, shared)
    vertices = []
    for index, vertex in enumerate(graph.vertices):
        own = [snapshots[index, subtask] for subtask in range(vertex.parallelism)]
        vertices.append(
            {
                "id": vertex.id,
                "parallelism": vertex.parallelism,
                "max_parallelism": vertex.effective_max_parallelism,
                "number": index if vertex.number is None else vertex.number,
                "is_fully_finished": end_of(own) is VertexEnd.ALL,
                **_ends(vertex, end_of(own)),
                "coordinator": _coordinator_state(writer, vertex),
                "subtasks": [_subtask(writer, vertex, subtask, snapshot) for subtask, snapshot in enumerate(own)],
            }
        )
    document = {
        "id": record.id,
        "triggered_at_us": record.triggered_at_us,
        "type": record.barrier.snapshot_type.name,
        "is_incremental": record.is_incremental,
        "format": None if record.savepoint is None else record.savepoint.format.value,
        "alignment": record.barrier.alignment.value,
        "repeatable_records": record.repeatable_records,
        "graph": fingerprint(graph),
        "vertices": vertices,
    }
    body = json.dumps(document, separators=(",", ":")).encode()[1:]
    return StoredCheckpoint(_CHECKED_BY % zlib.crc32(body) + body, writer.files)


def _coordinator_state(writer: _Writer, vertex: VertexSpec) -> dict[str, Any] | None:
    """Store the state of a vertex's coordinator, and return its handle (CK-1).

    For a source, the state is the splits that the coordinator assigned. Return None for other vertices, which have no
    such state.
    """
    if not vertex.kind.is_source:
        return None
    return writer.handle(f"{vertex.id}-coordinator", [SPLIT_ID.pack(split) for split in range(vertex.split_count)])


def files_of(
    snapshot: SubtaskSnapshot, *, new_files: int = 0, inline_below_bytes: int = INLINE_BELOW_BYTES
) -> FileCounts:
    """Return the number of byte strings that a subtask wrote, and how many are separate files (ME-18).

    ``new_files`` is the number of shared files that the subtask wrote for this snapshot.
    """
    sizes = [sum(map(len, each.keyed.values())) for each in snapshot.operators if each.increment is None]
    sizes += [sum(map(len, state.entries)) for operator in snapshot.operators for state in operator.states]
    for side in (snapshot.channels.inputs, snapshot.channels.outputs):
        sizes.append(sum(len(chunk) for chunks in side.values() for chunk in chunks))
    separate = sum(size >= inline_below_bytes for size in sizes)
    return FileCounts(sum(size > 0 for size in sizes) + new_files, separate + new_files)


def _ends(vertex: VertexSpec, end: VertexEnd) -> dict[str, Any]:
    """Return, for each operator of a vertex, how much of it has finished (FN-9 to FN-11).

    This is stored by operator, because operators may move to other vertices.
    """
    return {} if end is VertexEnd.NONE else {"finished": dict.fromkeys(operator_ids(vertex), end.value)}


def _subtask(writer: _Writer, vertex: VertexSpec, subtask: int, snapshot: SubtaskSnapshot) -> dict[str, Any]:
    name = f"{vertex.id}-{subtask}"
    own = groups_of(subtask, vertex.parallelism, vertex.effective_max_parallelism)
    channels = snapshot.channels
    row: dict[str, Any] = {
        "operators": [
            {
                "id": operator,
                "key_groups": [own.start, own.stop - 1],
                "keyed": writer.keyed(f"{name}-{n}-keyed", state),
                "states": [
                    {
                        "name": each.name,
                        "mode": each.mode.value,
                        **writer.handle(f"{name}-{n}-{each.name}", each.entries),
                    }
                    for each in state.states
                ],
            }
            for n, (operator, state) in enumerate(zip(operator_ids(vertex), snapshot.operators, strict=True))
        ],
        # CK-1, CK-4: each handle names its channel, so that both the input state and the output state of a channel
        # can be found.
        "inputs": _channels(writer, f"{name}-inputs", channels.inputs),
        "outputs": _channels(writer, f"{name}-outputs", channels.outputs),
        "watermark_us": snapshot.watermark_us,
        "state_bytes": snapshot.state_bytes,
        "persisted_bytes": snapshot.persisted_bytes,
        "replayed_changes": snapshot.replayed_changes,
    }
    return row if snapshot.finished is Finished.NO else row | {"finished": snapshot.finished.value}


def _channels(writer: _Writer, name: str, channels: Mapping[ChannelKey, list[Data]]) -> dict[str, Any]:
    keys = [[key.edge, key.source_subtask, key.target_subtask, len(chunks)] for key, chunks in channels.items()]
    segments = [chunk for chunks in channels.values() for chunk in chunks if isinstance(chunk, Segment)]
    if segments:
        return {"channels": keys, "segments": writer.segments(segments)}
    return {"channels": keys, **writer.handle(name, (bytes(c) for chunks in channels.values() for c in chunks))}


# --- reading ----------------------------------------------------------------------------------------------------------


def read_checkpoint(stored: StoredCheckpoint) -> ReadCheckpoint:
    """Read a checkpoint back from bytes (CK-3).

    Raises:
        CorruptCheckpointError: a part of the checkpoint is damaged or missing.
    """
    body = stored.metadata[_CHECK_BYTES:]
    if stored.metadata[:_CHECK_BYTES] != _CHECKED_BY % zlib.crc32(body):
        raise CorruptCheckpointError("the checkpoint's metadata is damaged", part="metadata")
    document = json.loads(stored.metadata)
    keyed = {v["id"]: v["is_keyed"] for v in document["graph"]["vertices"]}
    vertices = {
        row["id"]: VertexState(
            row["parallelism"],
            row["max_parallelism"],
            keyed[row["id"]],
            tuple(_read_subtask(stored, subtask, f"{row['id']}/{n}") for n, subtask in enumerate(row["subtasks"])),
            _read_splits(stored, row["coordinator"]),
            row["number"],
            {operator: VertexEnd(end) for operator, end in row.get("finished", {}).items()},
        )
        for row in document["vertices"]
    }
    return ReadCheckpoint(
        document["id"],
        document["triggered_at_us"],
        Alignment(document["alignment"]),
        document["graph"],
        vertices,
        document.get("repeatable_records", 0),
        document.get("format"),
    )


def _chunks(stored: StoredCheckpoint, handle: Mapping[str, Any]) -> list[bytes]:
    file = handle.get("file")
    data = base64.b64decode(handle["inline"]) if file is None else _file(stored, handle)
    return [data[at : at + size] for at, size in handle["spans"]]


def _file(stored: StoredCheckpoint, handle: Mapping[str, Any]) -> bytes:
    name = handle["file"]
    data = stored.files.get(name)
    if data is None:
        raise CorruptCheckpointError(f"the checkpoint's file {name} is missing", part=name)
    if zlib.crc32(data) != handle["crc"]:
        raise CorruptCheckpointError(f"the checkpoint's file {name} is damaged", part=name)
    return data


def _read_splits(stored: StoredCheckpoint, handle: Mapping[str, Any] | None) -> tuple[int, ...] | None:
    if handle is None:
        return None
    return tuple(split for chunk in _chunks(stored, handle) for (split,) in SPLIT_ID.iter_unpack(chunk))


def _read_subtask(stored: StoredCheckpoint, row: Mapping[str, Any], place: str) -> SubtaskSnapshot:
    operators = []
    for each in row["operators"]:
        keyed, increment = _read_keyed(stored, each["keyed"], place)
        states = tuple(
            OperatorState(state["name"], StateMode(state["mode"]), tuple(_chunks(stored, state)))
            for state in each["states"]
        )
        operators.append(OperatorSnapshot(keyed, states, increment))
    channels = ChannelState(_read_channels(stored, row["inputs"], place), _read_channels(stored, row["outputs"], place))
    sizes = row["state_bytes"], row["persisted_bytes"], row["replayed_changes"]
    return SubtaskSnapshot(
        tuple(operators), channels, row["watermark_us"], *sizes, Finished(row.get("finished", Finished.NO))
    )


def _read_keyed(
    stored: StoredCheckpoint, row: Mapping[str, Any], place: str
) -> tuple[dict[int, bytes], Increment | None]:
    """Read the keyed state of one operator. Return the state by key group, and its files if they are shared (IN-3)."""
    if "shared" not in row:
        return dict(zip(row["groups"], _chunks(stored, row), strict=True)), None
    files = tuple(
        FileHandle(f["key"], f["file"], f["size"], f["changes"], f["crc"], tuple((g, at, n) for g, at, n in f["spans"]))
        for f in row["shared"]
    )
    contents = [groups_in(file, stored.files, place=place) for file in files]
    increment = Increment(StateBackend(row["backend"]), row["base"], files, row["parts"])
    return consolidated(contents, row["parts"]), increment


def without_shared_files(read: ReadCheckpoint) -> ReadCheckpoint:
    """Return the checkpoint without the names of its shared files. They belong to the job that wrote them (IN-16)."""
    vertices = {name: replace(v, subtasks=tuple(map(_own, v.subtasks))) for name, v in read.vertices.items()}
    return replace(read, vertices=vertices)


def _own(snapshot: SubtaskSnapshot) -> SubtaskSnapshot:
    return replace(snapshot, operators=tuple(replace(each, increment=None) for each in snapshot.operators))


def _read_channels(stored: StoredCheckpoint, handle: Mapping[str, Any], place: str) -> dict[ChannelKey, list[Data]]:
    if "segments" in handle:
        chunks = iter([segment_in(stored.files, *segment, place=place) for segment in handle["segments"]])
    else:
        chunks = iter(_chunks(stored, handle))
    return {
        ChannelKey(edge, source, target): [next(chunks) for _ in range(count)]
        for edge, source, target, count in handle["channels"]
    }
