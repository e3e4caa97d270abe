"""The file in which ``simulate`` saves a checkpoint, and its reading. Users exchange such files, so any may be hostile.

The file is text and plain bytes, never code. Its first line is the magic word, the version of the format, the hash and
the length of the rest. The rest is one line of JSON (the manifest), the checkpoint's metadata document, its files and
the table of idempotent sinks, each with the length that the manifest gives. The hash detects damage. ``checked`` and
``shapes`` refuse content that no job writes.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Iterable, Mapping
from typing import Any, Final

from backend.domain.errors import CorruptCheckpointError, FieldProblem, InvalidInputError
from backend.domain.text import NAME_MAX, clean
from backend.runtime.operators.sinks import held_transactions
from backend.runtime.operators.storage import OutsideState, PreparedTransaction
from backend.runtime.snapshot.checked import as_corrupt, check_stored
from backend.runtime.snapshot.metadata import StoredCheckpoint, read_checkpoint
from backend.runtime.snapshot.saved import Handover, SavedCheckpoint
from backend.runtime.snapshot.shapes import Row, ShapeError, check

FILE_BYTES_MAX: Final = 1 << 30
VERSION: Final = 1
MAGIC: Final = b"barrierscope-checkpoint"
_FIRST: Final = re.compile(MAGIC + rb" (\d{1,9}) ([0-9a-f]{64}) (\d{1,15})\n")
_FIRST_BYTES_MAX = 128
_ROW: Final = struct.Struct("<qq")
_TRANSACTION: Final = re.compile(r".+/\d{1,9}/\d{1,9}/\d{1,18}", re.DOTALL)
_HASH: Final = re.compile(r"[0-9a-f]{16}")
_AT_US_MAX = 10**15
_MANIFEST: Final = {
    "job": str, "seed": int, "at_us": int, "attempt": int, "metadata": int, "files": [Row((str, int))],
    "outside": {
        "committed_count": int, "folded": str, "put_count": int, "lost": [str], "lost_count": int, "committed": [str],
        "prepared": [Row((str, int, int, str))], "table": int,
    },
}  # fmt: skip


def write_saved(saved: SavedCheckpoint) -> bytes:
    """Return the content of the file."""
    outside, files = saved.handover.outside, saved.stored.files
    table = b"".join(_ROW.pack(key, value) for key, value in sorted(outside.table.items()))
    manifest = {
        "job": saved.job,
        "seed": saved.seed,
        "at_us": saved.handover.at_us,
        "attempt": saved.handover.attempt,
        "metadata": len(saved.stored.metadata),
        "files": [[name, len(content)] for name, content in files.items()],
        "outside": {
            "committed_count": outside.committed_count,
            "folded": f"{outside.folded:016x}",
            "put_count": outside.put_count,
            "lost": outside.lost,
            "lost_count": outside.lost_count,
            "committed": outside.committed,
            "prepared": [[t.name, t.began_us, t.count, f"{t.folded:016x}"] for t in outside.prepared],
            "table": len(table),
        },
    }
    line = json.dumps(manifest, separators=(",", ":")).encode() + b"\n"
    rest = b"".join((line, saved.stored.metadata, *files.values(), table))
    return b"%b %d %b %d\n" % (MAGIC, VERSION, _hash(rest), len(rest)) + rest


def _hash(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=32).hexdigest().encode()


def read_saved(content: bytes, name: str) -> SavedCheckpoint:
    """Read the content of the file ``name``.

    Raises:
        InvalidInputError: it is no such file, or of a newer format.
        CorruptCheckpointError: it is damaged, or its content is not what a job writes.
    """
    first = _FIRST.match(content[:_FIRST_BYTES_MAX])
    if first is None:
        if content and MAGIC.startswith(content[: len(MAGIC)]):
            raise CorruptCheckpointError(f"the first line of {name} is damaged or cut off", part="first line")
        raise _refused(f"{name} is not a checkpoint that `simulate --save-checkpoint` wrote")
    version, expected, length = int(first[1]), first[2], int(first[3])
    if version != VERSION:
        raise _refused(f"{name} has format {version}, and this version of Barrierscope reads format {VERSION}")
    rest = content[first.end() :]
    if len(rest) < length:
        raise CorruptCheckpointError(f"{name} is cut off: {len(rest)} of {length} bytes are there", part="file")
    if len(rest) > length or _hash(rest) != expected:
        raise CorruptCheckpointError(f"{name} is damaged: its content does not match its hash", part="file")
    try:
        return _read(rest)
    except ShapeError as error:
        raise CorruptCheckpointError(
            f"{error.where[:200]} in {name} is not what a job writes", part="manifest"
        ) from None
    except (ValueError, RecursionError):
        raise CorruptCheckpointError(f"the manifest of {name} is not what a job writes", part="manifest") from None


def _refused(problem: str) -> InvalidInputError:
    return InvalidInputError([FieldProblem("file", problem, "a file of this version")], what="checkpoint file")


def _read(rest: bytes) -> SavedCheckpoint:
    line, _, data = rest.partition(b"\n")
    manifest = json.loads(line)
    check(manifest, _MANIFEST, "manifest")
    outside = manifest["outside"]
    sizes = [manifest["metadata"], *(size for _, size in manifest["files"]), outside["table"]]
    names = [name for name, _ in manifest["files"]]
    _require(min(sizes) >= 0 and sum(sizes) == len(data) and len(set(names)) == len(names), "manifest.files")
    _require(0 <= manifest["at_us"] <= _AT_US_MAX, "manifest.at_us")
    _require(manifest["seed"] >= 0, "manifest.seed")
    metadata, *files, table = _parts(data, sizes)
    stored = StoredCheckpoint(metadata, dict(zip(names, files, strict=True)))
    state = _outside(outside, table)
    check_stored(stored)
    with as_corrupt():
        _check_transactions(stored, state)
    job = clean(manifest["job"], length_max=NAME_MAX)
    return SavedCheckpoint(job, manifest["seed"], stored, Handover(manifest["at_us"], manifest["attempt"], state))


def _require(holds: bool, where: str) -> None:
    if not holds:
        raise ShapeError(where)


def _parts(data: bytes, sizes: Iterable[int]) -> list[bytes]:
    parts, at = [], 0
    for size in sizes:
        parts.append(data[at : at + size])
        at += size
    return parts


def _outside(row: Mapping[str, Any], table: bytes) -> OutsideState:
    counts = row["committed_count"], row["put_count"], row["lost_count"], *(count for _, _, count, _ in row["prepared"])
    _require(min(counts) >= 0, "manifest.outside")
    hashes = [row["folded"], *(folded for *_, folded in row["prepared"])]
    _require(all(map(_HASH.fullmatch, hashes)), "manifest.outside.folded")
    _require(len(table) % _ROW.size == 0, "manifest.outside.table")
    return OutsideState(
        row["committed_count"],
        int(row["folded"], 16),
        row["put_count"],
        tuple(row["lost"]),
        row["lost_count"],
        tuple(row["committed"]),
        tuple(PreparedTransaction(name, at, count, int(folded, 16)) for name, at, count, folded in row["prepared"]),
        dict(_ROW.iter_unpack(table)),
    )


def _check_transactions(stored: StoredCheckpoint, outside: OutsideState) -> None:
    """Check that the external system knows the transactions that the checkpoint commits, and no others."""
    known = {*outside.committed, *(each.name for each in outside.prepared)}
    _require(all(map(_TRANSACTION.fullmatch, known)), "manifest.outside.committed")
    _require(len(known) == len(outside.committed) + len(outside.prepared), "manifest.outside.prepared")
    read = read_checkpoint(stored)
    splits = (vertex.splits or () for vertex in read.vertices.values())
    _require(all(len(set(each)) == len(each) for each in splits), "checkpoint.vertices.coordinator")
    operators = (o for vertex in read.vertices.values() for s in vertex.subtasks for o in s.operators)
    _require({name for o in operators for name in held_transactions(o)} == known, "manifest.outside.committed")
