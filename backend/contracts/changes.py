"""When a job's checkpoints began to take another time: ``GET /api/v1/jobs/{job}/change-points``."""

from __future__ import annotations

from datetime import datetime

from backend.contracts.api import Model
from backend.domain.verdict import Basis


class ChangePointOut(Model):
    """One lasting change of the end-to-end durations of a job's checkpoints, savepoints left out."""

    at: datetime
    """Trigger time of the first checkpoint that took the new time."""
    run_id: str
    checkpoint_id: int
    before_since: datetime
    """Trigger time of the first checkpoint that ``before_median_ms`` is of."""
    after_until: datetime
    """Trigger time of the last one that ``after_median_ms`` is of."""
    before_median_ms: int
    after_median_ms: int
    is_before_at_least: bool
    """Whether that median is one of checkpoints that expired: they would have taken longer."""
    is_after_at_least: bool
    before_count: int
    after_count: int
    sentence: str
    basis: Basis = Basis.RECONSTRUCTED
