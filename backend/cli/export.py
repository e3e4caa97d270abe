"""``barrierscope export``: writes stored rows to a CSV or Parquet file, of any size in constant memory.

The rows are written to ``FILE.partial``, which becomes ``FILE`` only when it is complete and on disk. So a file
under the final name is always complete. If the export is stopped or fails, the partial file is removed.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from backend.cli.database import DatabaseUrl, RunningFolder, used_url
from backend.cli.options import OutputFormat, instant, stopped_by_signal
from backend.domain.errors import FieldProblem, HostError, InvalidInputError
from backend.domain.export import Contents
from backend.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from backend.store.export import Export, ExportSelection

_STANDARD_OUTPUT = "-"
_WRITE_BYTES = 1 << 20
# The progress bar moves each time that this many rows have been written.
_ROWS_PER_STEP = 10_000


class FileFormat(StrEnum):
    """The format of an exported file."""

    CSV = "csv"
    PARQUET = "parquet"


What = Annotated[Contents, typer.Argument(metavar="WHAT", help="checkpoints, subtasks, pressure, alerts or events")]
File = Annotated[str, typer.Argument(metavar="FILE", help="File to write. - writes CSV to standard output.")]
Jobs = Annotated[
    list[str] | None, typer.Option("--job", metavar="JOB", help="Name or id of a job; may be repeated. [every job]")
]
Since = Annotated[str | None, typer.Option(metavar="INSTANT", help="Export rows from this instant, with an offset.")]
Until = Annotated[str | None, typer.Option(metavar="INSTANT", help="Export rows before this instant.")]
Format = Annotated[
    FileFormat | None,
    typer.Option("--file-format", help="csv or parquet [by the end of the name of the file, or csv]."),
]


def export(
    what: What,
    file: File,
    job: Jobs = None,
    since: Since = None,
    until: Until = None,
    file_format: Format = None,
    database_url: DatabaseUrl = None,
    data_dir: RunningFolder = None,
    output_format: Annotated[OutputFormat, typer.Option("--format", help="text or json")] = OutputFormat.TEXT,
    is_raw: Annotated[
        bool, typer.Option("--raw", help="Write texts as they are, also those that a spreadsheet runs as formulas.")
    ] = False,
) -> None:
    """Write stored checkpoints, values by subtask, backpressure, alerts or events to a CSV or Parquet file."""
    settings = load_settings()
    chosen = file_format or (FileFormat.PARQUET if Path(file).suffix == ".parquet" else FileFormat.CSV)
    selection = _selection(job, since, until)
    if chosen is FileFormat.PARQUET:
        _check_parquet(file)
    url = used_url(database_url, data_dir, settings)
    from backend.store.export import Export

    with stopped_by_signal(), Export(url, what, selection) as opened, _progress_bar(opened) as on_progress:
        # Spreadsheets do not open Parquet, and its readers expect the names as they are.
        lines = _Counted(opened.lines(is_raw=is_raw or chosen is FileFormat.PARQUET), on_progress)
        if file == _STANDARD_OUTPUT:
            _write_csv(lines, sys.stdout.buffer)
            return
        with complete_file(Path(file)) as written:
            if chosen is FileFormat.PARQUET:
                _write_parquet(lines, written, what)
            else:
                _write_csv(lines, written)
    count = lines.row_count
    if output_format is OutputFormat.JSON:
        typer.echo(json.dumps({"file": file, "row_count": count, "size_bytes": Path(file).stat().st_size}))
    else:
        typer.echo(f"{file}: {count} row{'' if count == 1 else 's'}, {Path(file).stat().st_size} bytes")


@contextmanager
def complete_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file that appears at ``path`` only if the block ends without an exception.

    Raises:
        HostError: the file cannot be written, or another process is writing it.
    """
    partial = path.with_name(path.name + ".partial")
    try:
        # The file is not truncated before it is locked, because another process may be writing it.
        with partial.open("ab") as written:
            try:
                fcntl.flock(written, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise HostError(f"{partial} is being written by another process", fix="wait for it") from None
            # Between opening and locking it, another process may have finished this file and renamed it.
            if not partial.exists() or not os.path.samestat(os.fstat(written.fileno()), partial.stat()):
                raise HostError(f"{partial} was being written by another process", fix="run the command again")
            try:
                written.truncate(0)
                yield written
                written.flush()
                os.fsync(written.fileno())
                partial.replace(path)
            except BaseException:
                partial.unlink(missing_ok=True)
                raise
    except OSError as error:
        fix = "choose a file in a folder that exists, may be written and has space"
        raise HostError(f"{path} cannot be written ({error.strerror or error})", fix=fix) from None


class _Counted:
    """Iterates over the lines of an export and counts its rows. The first line has the column names."""

    def __init__(self, lines: Iterator[bytes], on_progress: Callable[[int], None]) -> None:
        self._lines = lines
        self._on_progress = on_progress
        self.row_count = 0

    def __iter__(self) -> Iterator[bytes]:
        yield next(self._lines)
        for line in self._lines:
            self.row_count += 1
            if self.row_count % _ROWS_PER_STEP == 0:
                self._on_progress(self.row_count)
            yield line


def _write_csv(lines: _Counted, written: BinaryIO) -> None:
    buffered = io.BufferedWriter(_Unclosed(written), _WRITE_BYTES)
    for line in lines:
        buffered.write(line)
    buffered.flush()


class _Unclosed(io.RawIOBase):
    """Writes to a file. Closing this object does not close the file."""

    def __init__(self, written: BinaryIO) -> None:
        self._written = written

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._written.write(data)
        return len(data)


class _Lines(io.RawIOBase):
    """Reads the lines of an export as one stream of bytes."""

    def __init__(self, lines: _Counted) -> None:
        self._lines = iter(lines)
        self._left = b""

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        size = len(target)
        parts, length = [self._left], len(self._left)
        while length < size and (line := next(self._lines, None)) is not None:
            parts.append(line)
            length += len(line)
        data = b"".join(parts)
        target[: min(size, length)] = data[:size]
        self._left = data[size:]
        return min(size, length)


def _check_parquet(file: str) -> None:
    if file == _STANDARD_OUTPUT:
        problem = FieldProblem("FILE", "Parquet cannot be written to standard output", "the name of a file")
        raise InvalidInputError([problem], what="option")
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        fix = "install barrierscope with the extra `spark`, or export CSV"
        raise HostError("Parquet needs the package pyarrow, which is not installed", fix=fix) from None


def _write_parquet(lines: _Counted, written: BinaryIO, what: Contents) -> None:
    import pyarrow as pa
    from pyarrow import csv, parquet

    from backend.store.export import Kind, columns_of

    types = {
        Kind.TEXT: pa.string(),
        Kind.INTEGER: pa.int64(),
        Kind.REAL: pa.float64(),
        Kind.BOOLEAN: pa.bool_(),
        Kind.INSTANT: pa.timestamp("us", tz="UTC"),
    }
    schema = pa.schema([(c.name, types[c.kind]) for c in columns_of(what)])
    # An empty field without quotes is a missing value. An empty field with quotes is empty text.
    convert = csv.ConvertOptions(
        column_types=schema,
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        true_values=["t"],
        false_values=["f"],
    )
    reader = csv.open_csv(
        io.BufferedReader(_Lines(lines), _WRITE_BYTES),
        read_options=csv.ReadOptions(use_threads=False, block_size=4 * _WRITE_BYTES),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=convert,
    )
    with parquet.ParquetWriter(written, schema, compression="zstd") as writer:
        for batch in reader:
            writer.write_batch(batch)


def _selection(jobs: list[str] | None, since: str | None, until: str | None) -> ExportSelection:
    from backend.store.export import ExportSelection

    first = None if since is None else instant(since, option="--since")
    last = None if until is None else instant(until, option="--until")
    if first is not None and last is not None and first >= last:
        problem = FieldProblem("--since", f"{since!r} is not before {until!r}", "an instant before --until")
        raise InvalidInputError([problem], what="option")
    return ExportSelection(tuple(jobs or ()), first, last)


@contextmanager
def _progress_bar(opened: Export) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on standard error if that is a terminal. Yield the function that updates it."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    columns = (
        *(
            TextColumn("rows"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
        ),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=opened.row_count())
        yield lambda done: progress.update(task, completed=done)
