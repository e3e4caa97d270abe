"""Chooses the incremental backend according to the settings."""

from __future__ import annotations

from collections.abc import Mapping

from backend.runtime.job.config import RuntimeConfig, StateBackend
from backend.runtime.operators.backends.base import ChainBackend
from backend.runtime.operators.backends.changelog import ChangelogBackend
from backend.runtime.operators.backends.diff import DiffBackend
from backend.runtime.operators.backends.sst import SstBackend

_BACKENDS: Mapping[StateBackend, type[ChainBackend]] = {
    each.kind: each for each in (ChangelogBackend, DiffBackend, SstBackend)
}


def backend_of(name: str, config: RuntimeConfig) -> ChainBackend | None:
    """Return the incremental backend of one operator, or None if each snapshot contains the whole state (ST-3)."""
    backend = _BACKENDS.get(config.state_backend)
    return None if backend is None else backend(name, config)
