"""The JSON of lasting changes in a job's checkpoint durations: ``GET /api/v1/jobs/{job}/change-points``."""

from __future__ import annotations

from datetime import datetime

from backend.contracts.model import Model
from backend.domain.verdict import Basis


class ChangePointOut(Model):
    """One lasting change of the end-to-end durations of a job's checkpoints. Savepoints are left out."""

    at: datetime
    """Trigger time of the first checkpoint after the change."""
    run_id: str
    checkpoint_id: int
    before_since: datetime
    """Trigger time of the first checkpoint that ``before_median_ms`` includes."""
    after_until: datetime
    """Trigger time of the last checkpoint that ``after_median_ms`` includes."""
    before_median_ms: int
    after_median_ms: int
    is_before_at_least: bool
    """Whether ``before_median_ms`` is only a lower bound, because it includes checkpoints that expired."""
    is_after_at_least: bool
    before_count: int
    after_count: int
    sentence: str
    basis: Basis = Basis.RECONSTRUCTED
