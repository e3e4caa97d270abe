"""Reads the checkpoint folder of a Structured Streaming query: its logs of offsets and commits, its state, its files.

Nothing is written and no server is asked. Of the state only names, sizes and times of the files are read. The layout is
that of Spark 2.1 to 4.3:

* ``metadata``                          the id of the query
* ``offsets/N``, ``commits/N``          begin and end of batch N: ``v1``, a line of JSON, and a line for each source
* ``sources/I/N``, ``N.compact``        the files that file source I read
* ``state/OPERATOR/PARTITION[/STORE]``  ``N.delta`` and ``N.snapshot``, or ``N.changelog``, ``N.zip`` and ``SSTs``

Version N + 1 of the state belongs to batch N. With asynchronous progress tracking, and in continuous mode, both logs
skip the same numbers.
"""

from __future__ import annotations

import heapq
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import orjson

from backend.domain.checkpoint_files import OFFSET_MAX, SOURCES_MAX
from backend.domain.errors import FieldProblem, InvalidInputError

OPTION: Final = "--spark-checkpoint"
PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"
PARTITIONS: Final = "spark.sql.shuffle.partitions"
SMALL_BYTES: Final = 100_000
"""A file below this size costs a store as much as a larger one."""
_FILES_MAX: Final = 500_000
_READ_MAX: Final = 400
"""So many of the newest files of a log are kept and read. The others are counted."""
_KEPT_MAX: Final = 100_000
"""So many operators and partitions are kept, together, and so many folders wait to be listed."""
_STORES_MAX: Final = 8
"""A partition of a join has four stores."""
_FILE_MAX_BYTES: Final = 4 << 20
_USUAL_MAX_BYTES: Final = 64 << 10
"""A commit and the metadata are smaller. Offsets are longer if a source has thousands of partitions."""
_SETTINGS: Final = (PARTITIONS, PROVIDER)
_SETTING_MAX: Final = 300
_HIDDEN_TEMP: Final = re.compile(r"\.(\d+)\..*\.tmp")
_NUMBER: Final = re.compile(r"\d{1,18}")
_STATE_FILE: Final = re.compile(r"(\d{1,18})(?:_[^.]*)?\.(delta|snapshot|changelog|zip)")
_COMPACT: Final = re.compile(r"(\d{1,18})\.compact")
_SNAPSHOTS: Final = ("snapshot", "zip")
_NO_OFFSET: Final = "-"
_KNOWN_VERSIONS: Final = ("v1", "v2")
_ENTRIES: Final = ("metadata", "offsets", "commits")
_INSIDE: Final = "the folder that a query names in checkpointLocation"


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of the log of offsets or commits. What is not known is None: it was not written, or not read."""

    number: int
    written_at: datetime
    version: str | None = None
    triggered_at: datetime | None = None
    """When Spark had asked the sources: some milliseconds after the trigger, or more if that takes long."""
    watermark_at: datetime | None = None
    settings: dict[str, str] = field(default_factory=dict)
    """The number of partitions and the provider of the state, if the query's first start set them."""
    source_count: int | None = None
    offsets: tuple[str | None, ...] = ()
    """The offsets of the first sources as their own texts, cut. None is a source that had none yet."""


@dataclass(slots=True)
class Partition:
    """The files of one partition of a stateful operator, over all of its stores."""

    size_bytes: int = 0
    file_count: int = 0
    delta_count: int = 0
    snapshot_count: int = 0
    version: int | None = None
    snapshot_version: int | None = None
    snapshots: dict[str, dict[int, int]] = field(default_factory=dict)
    """Sizes of the snapshots in bytes, by store and version. Only those of the HDFS store have the whole state."""


@dataclass(slots=True)
class Operator:
    """A stateful operator. ``name`` is known since Spark 4.0."""

    number: int
    name: str | None = None
    partitions: dict[int, Partition] = field(default_factory=dict)


@dataclass(slots=True)
class Files:
    """All files of the folder. Checksums are those that Hadoop writes beside a file on a local disk."""

    count: int = 0
    size_bytes: int = 0
    small_count: int = 0
    checksum_count: int = 0
    temporary_count: int = 0
    is_cut: bool = False
    """Whether there are more files, folders or partitions than are read."""


@dataclass(slots=True)
class CheckpointFolder:
    """What was read of one checkpoint folder. ``problems`` says what could not be read."""

    path: str
    query_id: str | None = None
    offsets: dict[int, Entry] = field(default_factory=dict)
    commits: dict[int, Entry] = field(default_factory=dict)
    """Of each log the newest files. ``offsets_count`` and ``commits_count`` are those of all."""
    offsets_count: int = 0
    commits_count: int = 0
    operators: dict[int, Operator] = field(default_factory=dict)
    source_files: dict[int, int] = field(default_factory=dict)
    """Number of log files of each source that keeps a log, by its number."""
    compacted: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The number of the newest file of such a log that has all of it (``N.compact``), and its size in bytes."""
    kept_count: int = 0
    """Number of operators, partitions and sources, also of those that are left out."""
    files: Files = field(default_factory=Files)
    problems: list[str] = field(default_factory=list)

    @property
    def newest_commit(self) -> Entry | None:
        return self.commits[max(self.commits)] if self.commits else None

    @property
    def newest_offsets(self) -> Entry | None:
        return self.offsets[max(self.offsets)] if self.offsets else None


def read_folder(name: str) -> CheckpointFolder:
    """Read a checkpoint folder.

    Raises:
        InvalidInputError: it is no checkpoint folder of a streaming query, or cannot be read; the message says why.
    """
    path = Path(name)
    if "://" in name:
        raise _refused(f"{name!r} is an address", "a folder on this machine: copy or mount it")
    try:
        if not path.is_dir():
            raise _refused(f"{name!r} {'is a file' if path.exists() else 'does not exist'}", _INSIDE)
        _check(path)
        found = CheckpointFolder(name)
        _read_metadata(found, path)
        found.offsets, found.offsets_count = _read_log(found, path / "offsets", _FILE_MAX_BYTES)
        found.commits, found.commits_count = _read_log(found, path / "commits", _USUAL_MAX_BYTES)
        _walk(found, path)
        found.operators = dict(sorted(found.operators.items()))
    except OSError as error:
        raise _refused(
            f"{name!r} cannot be read ({error.strerror or type(error).__name__})", "a readable folder"
        ) from error
    except (ValueError, OverflowError) as error:
        raise _refused(
            f"{name!r} cannot be read ({error})", "a folder whose files have times up to year 9999"
        ) from error
    return found


def is_checkpoint_folder(path: Path) -> bool:
    """Return whether a folder is that of a query rather than one of event logs.

    One that is missing, or that may not be entered, is neither.
    """
    # Unlike that of a path, this one raises nothing.
    return any(os.path.isdir(path / name) for name in ("offsets", "commits"))


def _refused(message: str, allowed: str) -> InvalidInputError:
    return InvalidInputError([FieldProblem(OPTION, message, allowed)], what="option")


def _check(path: Path) -> None:
    """Refuse a folder that is something else, and say what it is."""
    inside = sorted(os.listdir(path))
    if any(entry in inside for entry in _ENTRIES):
        return
    below = [entry for entry in inside if any((path / entry / known).exists() for known in ("offsets", "commits"))]
    if below:
        more = f" and {len(below) - 5} more" if len(below) > 5 else ""
        raise _refused(f"{str(path)!r} holds the checkpoint folders {', '.join(below[:5])}{more}", "one of them")
    kinds = (
        ("_spark_metadata", "the output of a file sink"),
        ("_delta_log", "a Delta table"),
        ("_metadata", "a checkpoint of Flink"),
        ("chk-", "the checkpoints of a Flink job"),
        ("checkpoint-", "a checkpoint of the older DStreams"),
        ("rdd-", "a checkpoint of RDDs"),
    )
    for start, kind in kinds:
        if any(entry.startswith(start) for entry in inside):
            raise _refused(f"{str(path)!r} is {kind}", _INSIDE)
    what = "is empty" if not inside else "has neither offsets nor commits nor metadata"
    raise _refused(f"{str(path)!r} {what}", _INSIDE)


def _read_metadata(found: CheckpointFolder, path: Path) -> None:
    file = path / "metadata"
    if not file.is_file():
        found.problems.append("the file metadata is missing: Spark gives the query a new id at its next start")
        return
    try:
        found.query_id = str(orjson.loads(_content(file))["id"])[:100]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        found.problems.append("the file metadata has no id: Spark refuses to start the query")


class _Names:
    """The numbers of the files of a log, one after the other. ``count`` is how many there were."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.count = 0

    def __iter__(self) -> Iterator[int]:
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if _NUMBER.fullmatch(entry.name) and entry.is_file():
                    self.count += 1
                    yield int(entry.name)


def _read_log(found: CheckpointFolder, folder: Path, size_max: int) -> tuple[dict[int, Entry], int]:
    """Return the newest entries of a log by number, and the number of all."""
    if not folder.is_dir():
        return {}, 0
    names = _Names(folder)
    newest = sorted(heapq.nlargest(_READ_MAX, names))
    log: dict[int, Entry] = {}
    for number in newest:
        name, file = f"{folder.name}/{number}", folder / str(number)
        # A running query removes old files of its logs.
        with suppress(FileNotFoundError):
            at = _written_at(name, file.stat().st_mtime)
            content = _content(file, size_max)
            try:
                log[number] = _entry(number, at, content, is_cut=len(content) == size_max)
            except UnknownVersionError as error:
                log[number] = Entry(number, at)
                found.problems.append(
                    f"{name} is written in the format {error}, which is not known: only its time is used"
                )
            except (ValueError, TypeError, AttributeError, OverflowError):
                log[number] = Entry(number, at)
                found.problems.append(f"{name} is broken: Spark cannot read it")
    return log, names.count - (len(newest) - len(log))


class UnknownVersionError(Exception):
    """The first line of a log file names a version that no Spark up to 4.3 writes."""


def _entry(number: int, written_at: datetime, content: bytes, *, is_cut: bool) -> Entry:
    first, _, rest = content.partition(b"\n")
    version = first.decode("utf-8").strip()
    if not re.fullmatch(r"v\d{1,9}", version):
        raise ValueError("a log file begins with its version")
    if version not in _KNOWN_VERSIONS:
        raise UnknownVersionError(version)
    # What follows the last source that is kept is not divided: it may have any number of lines.
    text, *offsets = rest.split(b"\n", SOURCES_MAX + 1)
    # In continuous mode this line is empty. The commits of RocksDB name each store, and may be longer than is read.
    is_whole = not is_cut or b"\n" in rest
    head: dict[str, Any] = orjson.loads(text) if is_whole and text.strip() else {}
    watermark = head.get("batchWatermarkMs", head.get("nextBatchWatermarkMs"))
    settings = head.get("conf") or {}
    return Entry(
        number,
        written_at,
        version=version,
        triggered_at=_at_ms(head.get("batchTimestampMs")),
        watermark_at=_at_ms(watermark),
        settings={key: str(settings[key])[:_SETTING_MAX] for key in _SETTINGS if settings.get(key) is not None},
        source_count=rest.count(b"\n") if "batchWatermarkMs" in head and not is_cut else None,
        offsets=tuple(_offset(line) for line in offsets[:SOURCES_MAX] if line),
    )


def _offset(line: bytes) -> str | None:
    # A character has at most 4 bytes; that of the cut is left out.
    text = line[: 4 * OFFSET_MAX].decode("utf-8", "ignore" if len(line) > 4 * OFFSET_MAX else "strict")
    return None if text == _NO_OFFSET else text[:OFFSET_MAX]


def _at_ms(value: object) -> datetime | None:
    """Return an instant, or None: Spark writes 0 if a query has no watermark yet."""
    if value is None or value == 0:
        return None
    if not isinstance(value, int):
        raise TypeError("an instant is a number of milliseconds")
    return _at(value / 1000)


def _written_at(name: str, seconds: float) -> datetime:
    try:
        return _at(seconds)
    except (ValueError, OverflowError, OSError) as error:
        raise ValueError(f"{name} has a time that no calendar has") from error


def _at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _content(file: Path, size_max: int = _USUAL_MAX_BYTES) -> bytes:
    with file.open("rb") as opened:
        return opened.read(size_max)


def _walk(found: CheckpointFolder, path: Path) -> None:
    """Count all files, and find those of the state and of the sources."""
    files = found.files
    for parts, size in _files(path, files):
        if files.count >= _FILES_MAX:
            files.is_cut = True
            return
        files.count += 1
        files.size_bytes += size
        name = parts[-1]
        if name.endswith(".crc"):
            files.checksum_count += 1
            continue
        if _HIDDEN_TEMP.fullmatch(name):
            files.temporary_count += 1
        files.small_count += size < SMALL_BYTES
        if parts[0] == "state" and len(parts) > 2:
            _add_state(found, path, parts, size)
        elif parts[0] == "sources" and len(parts) > 2 and _NUMBER.fullmatch(parts[1]):
            if int(parts[1]) not in found.source_files and not _is_kept(found):
                continue
            found.source_files[int(parts[1])] = found.source_files.get(int(parts[1]), 0) + 1
            if len(parts) == 3 and (match := _COMPACT.fullmatch(name)) is not None:
                newest = (int(match[1]), size)
                found.compacted[int(parts[1])] = max(newest, found.compacted.get(int(parts[1]), newest))


def _files(path: Path, files: Files) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield the parts of each file's path, and its size in bytes. Links to folders are not followed.

    A running query removes files and folders meanwhile. They are left out.
    """
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        folder = waiting.pop()
        with suppress(FileNotFoundError), os.scandir(path.joinpath(*folder)) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if len(waiting) >= _KEPT_MAX:
                        files.is_cut = True
                        continue
                    waiting.append((*folder, entry.name))
                elif entry.is_file():
                    try:
                        size = entry.stat().st_size
                    except FileNotFoundError:
                        continue
                    yield (*folder, entry.name), size


def _add_state(found: CheckpointFolder, path: Path, parts: tuple[str, ...], size: int) -> None:
    if not _NUMBER.fullmatch(parts[1]):
        return
    operator = found.operators.get(int(parts[1]))
    if operator is None:
        if not _is_kept(found):
            return
        operator = found.operators[int(parts[1])] = Operator(int(parts[1]))
    if parts[2:] in (("_metadata", "metadata"), ("_metadata", "v2", "0")):
        operator.name = operator.name or _operator_name(path.joinpath(*parts))
    if not _NUMBER.fullmatch(parts[2]) or "_metadata" in parts:
        return
    partition = operator.partitions.get(int(parts[2]))
    if partition is None:
        if not _is_kept(found):
            return
        partition = operator.partitions[int(parts[2])] = Partition()
    partition.file_count += 1
    partition.size_bytes += size
    match = _STATE_FILE.fullmatch(parts[-1])
    if match is None:
        return
    version = int(match[1])
    partition.version = max(version, partition.version or 0)
    if match[2] not in _SNAPSHOTS:
        partition.delta_count += 1
    else:
        partition.snapshot_count += 1
        partition.snapshot_version = max(version, partition.snapshot_version or 0)
    store = "/".join(parts[3:-1])
    if match[2] == "snapshot" and (store in partition.snapshots or len(partition.snapshots) < _STORES_MAX):
        partition.snapshots.setdefault(store, {})[version] = size


def _is_kept(found: CheckpointFolder) -> bool:
    """Count one more operator, partition or source. Return whether it may be kept; if not, the folder is cut."""
    found.kept_count += 1
    if found.kept_count > _KEPT_MAX:
        found.files.is_cut = True
    return found.kept_count <= _KEPT_MAX


def _operator_name(file: Path) -> str | None:
    try:
        _, _, text = _content(file).partition(b"\n")
        return str(orjson.loads(text.splitlines()[0])["operatorInfo"]["operatorName"])[:200]
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None
