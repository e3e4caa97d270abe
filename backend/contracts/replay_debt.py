"""The JSON of a replay debt: what a failure of a job would restore now, and how much input it would read again."""

from __future__ import annotations

from datetime import datetime

from backend.contracts.model import Model
from backend.domain.replay_debt import DebtOrigin


class ReplayDebtOut(Model):
    """What a failure of the job would restore now. The input that was read since ``since`` is then read again."""

    since: datetime
    """By the engine's clock: the trigger of the checkpoint, or when the run was restored or started."""
    origin: DebtOrigin
    checkpoint_id: int | None = None
    """The newest completed checkpoint, if ``origin`` is ``checkpoint``."""
    is_at_least: bool = False
    """Whether the debt is a lower bound, because the position of the restored snapshot is not known."""
    input_per_s: float | None = None
    """The records that all sources read in a second now, measured; null if this is not known."""
    use_ratio: float | None = None
    """How much of what the job could process it does process (0..1).

    Null if this is not known, or if something holds the job back.
    """


class WithReplayDebt(Model):
    """The replay debt of a job. The last three grow with each reading of the job. Null if not known.

    A job that takes no checkpoints has no debt.
    """

    replay_debt: ReplayDebtOut | None = None
    replay_debt_ms: float | None = None
    """The time span of the input that a failure would read again: the age of ``since`` when the job was last read."""
    replay_debt_records: float | None = None
    """The records of that input at the present rate, reconstructed."""
    replay_debt_catch_up_ms: float | None = None
    """The predicted time from the end of the outage until the backlog is gone."""
