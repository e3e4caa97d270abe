"""The changes that a what-if can make to a job. None means that a value stays as it is."""

from __future__ import annotations

from dataclasses import dataclass

from backend.domain.advice import Mode
from backend.domain.ids import VertexId


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """A changed job. ``parallelism`` maps vertices to their new parallelism.

    ``load_factor`` multiplies the rate of every source. ``without_skew`` gives each subtask of a vertex the same share
    of its input, and ``without_slow_host`` removes the part of the service time that a slow host causes.
    ``is_debloat_off`` turns buffer debloating off.
    """

    mode: Mode | None = None
    aligned_timeout_ms: float | None = None
    inflight_cap_bytes: int | None = None
    is_uncapped: bool = False
    debloat_target_ms: float | None = None
    is_debloat_off: bool = False
    interval_ms: float | None = None
    min_pause_ms: float | None = None
    timeout_ms: float | None = None
    parallelism: tuple[tuple[VertexId, int], ...] = ()
    load_factor: float = 1.0
    without_skew: bool = False
    without_slow_host: bool = False
