"""Checkpoint files that users upload, so that a live job can begin from what ``simulate --save-checkpoint`` wrote.

A file may be hostile. ``snapshot.saved_file`` reads it, which runs no code and refuses what no job writes. Only the
newest files are kept, in memory.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from backend.domain.errors import UnknownEntityError
from backend.live.wire import Object
from backend.runtime.snapshot.metadata import read_checkpoint
from backend.runtime.snapshot.saved import SavedCheckpoint
from backend.runtime.snapshot.saved_file import read_saved

UPLOAD_MAX_BYTES: Final = 16 << 20
_KEPT: Final = 4
LOCATION: Final = re.compile(r"runtime:/uploaded/[0-9a-f]{32}")


class Uploads:
    """The newest uploaded checkpoints, by location."""

    def __init__(self) -> None:
        self._kept: dict[str, SavedCheckpoint] = {}

    def add(self, content: bytes) -> Object:
        """Read and keep a file. Return its location, and what tells the checkpoint from others.

        Raises:
            InvalidInputError: it is no checkpoint file, or of a newer format.
            CorruptCheckpointError: it is damaged, or its content is not what a job writes.
        """
        saved = read_saved(content, "the uploaded file")
        read = read_checkpoint(saved.stored)
        location = f"runtime:/uploaded/{hashlib.blake2b(content, digest_size=16).hexdigest()}"
        self._kept.pop(location, None)
        self._kept[location] = saved
        while len(self._kept) > _KEPT:
            del self._kept[next(iter(self._kept))]
        return {"location": location, "job": saved.job, "id": read.id, "kind": read.name_of_kind}

    def get(self, location: str) -> SavedCheckpoint:
        """Return an uploaded checkpoint.

        Raises:
            UnknownEntityError: there is none at this location, or it was dropped after newer ones.
        """
        saved = self._kept.get(location)
        if saved is None:
            raise UnknownEntityError(kind="uploaded checkpoint", id=location)
        return saved

    def drop(self, location: str) -> None:
        """Forget an uploaded checkpoint, which a job has claimed (IN-16)."""
        self._kept.pop(location, None)
