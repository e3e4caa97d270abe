"""Checks the metadata document of a checkpoint from a user, who may have written anything into it.

The checksums of a checkpoint detect damage, but not a forged document. This module checks that the document has the
shape that ``metadata`` writes, and that it does not refer to more bytes than there are, so that reading it is safe.
"""

from __future__ import annotations

import base64
import binascii
import json
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Final

from backend.domain.errors import CorruptCheckpointError, ProtocolViolationError
from backend.runtime.job.graph import PARALLELISM_MAX
from backend.runtime.snapshot.metadata import StoredCheckpoint
from backend.runtime.snapshot.shapes import Either, Named, Row, ShapeError, check

_GROUPS_MAX = 32768
_SPANS: Final = {"spans": [Row((int, int))], "size": int}
_INLINE: Final = {"inline": str, **_SPANS}
_FILE: Final = {"file": str, "crc": int, **_SPANS}


def _handle(**more: Any) -> Either:
    return Either(({**_INLINE, **more}, {**_FILE, **more}))


_SHARED: Final = {
    "key": str, "file": str, "size": int, "changes": int, "crc": int, "spans": [Row((int, int, int))],
}  # fmt: skip
_INCREMENT: Final = {
    "kind": str, "base": Either((None, int)), "backend": str, "parts": int, "shared": [_SHARED],
}  # fmt: skip
_CHANNEL_KEYS: Final = [Row((int, int, int, int))]
_CHANNELS: Final = Either((
    {"channels": _CHANNEL_KEYS, "segments": [Row((str, int, int, int))]},
    *_handle(channels=_CHANNEL_KEYS).shapes,
))  # fmt: skip
_SUBTASK: Final = {
    "operators": [{
        "id": str,
        "key_groups": Row((int, int)),
        "keyed": Either((_INCREMENT, *_handle(groups=[int]).shapes)),
        "states": [_handle(name=str, mode=str)],
    }],
    "inputs": _CHANNELS, "outputs": _CHANNELS, "watermark_us": int, "state_bytes": int, "persisted_bytes": int,
    "replayed_changes": int, "finished?": str,
}  # fmt: skip
_DOCUMENT: Final = {
    "crc": str, "id": int, "triggered_at_us": int, "type": str, "is_incremental": bool,
    "format": Either((None, str)), "alignment": str, "repeatable_records": int,
    "graph": {
        "vertices": [{"id": str, "operators": [str], "parallelism": int, "is_keyed": bool}],
        "edges": [{"source": str, "target": str, "partitioner": str, "by_origin": bool}],
    },
    "vertices": [{
        "id": str, "parallelism": int, "max_parallelism": int, "number": int, "is_fully_finished": bool,
        "finished?": Named(str), "coordinator": Either((None, *_handle().shapes)), "subtasks": [_SUBTASK],
    }],
}  # fmt: skip


# What reading state or data can raise that no job wrote. The checks below refuse most of it before, but the state of an
# operator is only read when the operator restores it.
_BROKEN: Final = (
    *(LookupError, ValueError, TypeError, AttributeError, ArithmeticError, AssertionError, RuntimeError, StopIteration),
    *(struct.error, ProtocolViolationError),
)


@contextmanager
def as_corrupt() -> Iterator[None]:
    """Report an error of reading as one of the checkpoint, because a user's checkpoint may contain anything.

    Raises:
        CorruptCheckpointError: something in this block failed that does not fail with what a job writes.
    """
    try:
        yield
    except _BROKEN as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise CorruptCheckpointError(f"the job cannot run with this checkpoint ({why})", part="content") from error


def check_stored(stored: StoredCheckpoint) -> None:
    """Check a checkpoint from a user before it is read.

    Raises:
        CorruptCheckpointError: it differs from what a job writes.
    """
    try:
        document = json.loads(stored.metadata)
        check(document, _DOCUMENT, "checkpoint")
        _check_places(document)
        _check_bytes(document, stored.files)
    except ShapeError as error:
        raise _forged(error.where) from None
    except (ValueError, RecursionError):
        raise _forged("checkpoint") from None


def _forged(where: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(f"{where[:200]} is not what a job writes", part=where[:200])


def _require(holds: bool, where: str) -> None:
    if not holds:
        raise ShapeError(where)


def _check_places(document: Mapping[str, Any]) -> None:
    """Check that the state of each subtask is at a place that the checkpoint's graph has."""
    graph = {vertex["id"]: vertex for vertex in document["graph"]["vertices"]}
    edges = document["graph"]["edges"]
    _require(document["id"] >= 1, "checkpoint.id")
    _require(all({edge["source"], edge["target"]} <= graph.keys() for edge in edges), "checkpoint.graph.edges")
    _require([v["id"] for v in document["vertices"]] == list(graph), "checkpoint.vertices")
    for n, vertex in enumerate(document["vertices"]):
        where, own = f"checkpoint.vertices[{n}]", graph[vertex["id"]]
        counts = {vertex["parallelism"], own["parallelism"], len(vertex["subtasks"])}
        _require(len(counts) == 1 and 1 <= vertex["parallelism"] <= PARALLELISM_MAX, f"{where}.parallelism")
        _require(vertex["parallelism"] <= vertex["max_parallelism"] <= _GROUPS_MAX, f"{where}.max_parallelism")
        _require(vertex["number"] >= 0, f"{where}.number")
        for i, subtask in enumerate(vertex["subtasks"]):
            place = f"{where}.subtasks[{i}]"
            _require([o["id"] for o in subtask["operators"]] == own["operators"], f"{place}.operators")
            for side in ("inputs", "outputs"):
                _check_channels(subtask[side], document, f"{place}.{side}")


def _check_channels(handle: Mapping[str, Any], document: Mapping[str, Any], where: str) -> None:
    edges = document["graph"]["edges"]
    parallelism = {v["id"]: v["parallelism"] for v in document["vertices"]}
    for edge, source, target, count in handle["channels"]:
        _require(0 <= edge < len(edges) and count >= 0, f"{where}.channels")
        _require(0 <= source < parallelism[edges[edge]["source"]], f"{where}.channels")
        _require(0 <= target < parallelism[edges[edge]["target"]], f"{where}.channels")
    parts = handle["segments"] if "segments" in handle else handle["spans"]
    _require(sum(row[3] for row in handle["channels"]) == len(parts), f"{where}.channels")


def _check_bytes(document: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
    """Check that the parts of each byte string follow one another, and that no byte of a file is used twice.

    A small file could otherwise fill the memory, because each part is a copy.
    """
    used = 0
    for n, handle in _handles(document):
        where = f"checkpoint.vertices[{n}]"
        if "segments" in handle:
            _require(all(at >= 0 and size >= 0 for _, at, size, _ in handle["segments"]), where)
            used += sum(size for _, _, size, _ in handle["segments"])
            continue
        spans = [(at, size) for *_, at, size in handle["spans"]]
        _require(all(size >= 0 for _, size in spans), where)
        _require(all(at + size == after for (at, size), (after, _) in pairwise(spans)), where)
        _require(not spans or spans[0][0] == 0, where)
        end = sum(size for _, size in spans)
        if "inline" in handle:
            _require(end == handle["size"] == len(_inline(handle["inline"])), where)
        else:
            used += end
            _require(end <= len(files.get(handle["file"], b"")), where)
        if "groups" in handle:
            _require(len(handle["groups"]) == len(spans), where)
    _require(used <= sum(map(len, files.values())), "checkpoint.files")


def _inline(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None


def _handles(document: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield every handle of the document, with the index of its vertex."""
    for n, vertex in enumerate(document["vertices"]):
        if vertex["coordinator"] is not None:
            yield n, vertex["coordinator"]
        for subtask in vertex["subtasks"]:
            yield n, subtask["inputs"]
            yield n, subtask["outputs"]
            for operator in subtask["operators"]:
                for handle in (*operator["keyed"].get("shared", (operator["keyed"],)), *operator["states"]):
                    yield n, handle
