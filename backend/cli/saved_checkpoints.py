"""Reads and writes the files of ``simulate --from`` and ``--save-checkpoint``, and decides which options apply.

Invariants: a file is complete or absent, never half written. No file is replaced that is not a checkpoint.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from backend.domain.errors import FieldProblem, HostError, InvalidInputError, PlanError

if TYPE_CHECKING:
    from backend.runtime.engine.jobfile import JobSpec
    from backend.runtime.snapshot.saved import RestoreOptions, SavedCheckpoint


def restore_of(
    spec: JobSpec,
    job: str,
    origin: str | None,
    *,
    allows_non_restored: bool,
    is_at_own_risk: bool,
    is_claimed: bool | None,
) -> tuple[Path, RestoreOptions] | None:
    """Return the file to begin from and the options, from the command line or else from ``[restore]`` of the job file.

    A path in the job file is relative to the job file. None if the job begins without a checkpoint.

    Raises:
        InvalidInputError: an option of a restore is set, but no file to restore.
    """
    from backend.runtime.snapshot.saved import RestoreOptions

    own = spec.restore
    if origin is None and own is None:
        if allows_non_restored or is_at_own_risk or is_claimed is not None:
            raise _wrong("--from", "is missing, and another option is about the checkpoint to begin from", "a file")
        return None
    known = RestoreOptions() if own is None else own.options
    options = RestoreOptions(
        allows_non_restored or known.allows_non_restored,
        is_at_own_risk or known.is_at_own_risk,
        known.is_claimed if is_claimed is None else is_claimed,
    )
    if origin is not None:
        return Path(origin), options
    assert own is not None
    return Path(job).parent / own.origin, options


def read(path: Path) -> SavedCheckpoint:
    """Read a saved checkpoint.

    Raises:
        InvalidInputError: the file cannot be read, is no checkpoint, or is of a newer format.
        CorruptCheckpointError: the file is damaged, or its content is not what a job writes.
    """
    from backend.runtime.snapshot.saved_file import FILE_BYTES_MAX, read_saved

    try:
        # Read at most one byte more than a file may have, because a device or a pipe may be endless.
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        raise _wrong("--from", f"cannot read {path}: {_reason(error)}", "a file of --save-checkpoint") from None
    if len(content) > FILE_BYTES_MAX:
        raise _wrong("--from", f"{path} is larger than {FILE_BYTES_MAX} bytes", "a file of --save-checkpoint")
    return read_saved(content, str(path))


def check_target(path: Path) -> None:
    """Check that a checkpoint can be saved at ``path``, before a run whose result would be lost.

    Raises:
        InvalidInputError: the folder does not exist, or there is something else that saving would replace.
    """
    from backend.runtime.snapshot.saved_file import MAGIC

    if not path.parent.is_dir():
        raise _wrong("--save-checkpoint", f"{path.parent} is not a folder", "a file in an existing folder")
    try:
        is_other = path.exists() and (not path.is_file() or (path.stat().st_size and not _begins(path, MAGIC)))
    except (OSError, ValueError) as error:
        raise _wrong("--save-checkpoint", f"cannot write {path}: {_reason(error)}", "another file") from None
    if is_other:
        raise _wrong("--save-checkpoint", f"{path} exists and is not a checkpoint", "a new file or a checkpoint")


def _begins(path: Path, magic: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(magic)) == magic


def write(path: Path, saved: SavedCheckpoint | None) -> None:
    """Save a checkpoint. The file replaces an earlier checkpoint at ``path`` as a whole.

    Raises:
        PlanError: the run has no complete checkpoint.
        HostError: the file cannot be written.
    """
    from backend.runtime.snapshot.saved_file import write_saved

    if saved is None:
        raise PlanError(
            f"no checkpoint of this run is complete, so {path} was not written",
            rule="CO-7",
            vertex=None,
            fix="run longer (--duration), or with a shorter interval",
        )
    # The name is new, so that it does not follow a link that someone else put there.
    written = path.with_name(f".{path.name[:100]}.{os.getpid()}.part")
    try:
        file = written.open("xb")
    except OSError as error:
        raise HostError(f"cannot write {written}: {_reason(error)}", fix="save elsewhere") from error
    try:
        with file:
            file.write(write_saved(saved))
        os.replace(written, path)
    except OSError as error:
        raise HostError(f"cannot write {path}: {_reason(error)}", fix="make room, or save elsewhere") from error
    finally:
        written.unlink(missing_ok=True)


def delete(path: Path) -> None:
    """Delete a claimed checkpoint that is not needed any more.

    Raises:
        HostError: the file cannot be deleted.
    """
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise HostError(f"cannot delete {path}: {_reason(error)}", fix="delete it, or use --no-claim") from error


def is_same(path: Path, other: Path) -> bool:
    """Return whether two paths name the same file."""
    return path.exists() and other.exists() and path.samefile(other)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _wrong(option: str, problem: str, allowed: str) -> InvalidInputError:
    return InvalidInputError([FieldProblem(option, problem, allowed)], what="option")
