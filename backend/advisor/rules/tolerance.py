"""Says when the number of tolerable failures is used up, so that one more failed checkpoint restarts the job."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from backend.advisor.advice import Lint
from backend.advisor.situation import Situation
from backend.domain.advice import LintLevel
from backend.domain.checkpoint import CheckpointConfig, CheckpointHeader, CheckpointKind, CheckpointStatus
from backend.domain.failure import FailureReason

UNLIMITED_COUNT: Final = 2**31 - 1
"""The number of tolerable failures that an engine reports if there is no limit: the largest Java int."""
_CONFIG_DOCS = "https://nightlies.apache.org/flink/flink-docs-stable/docs/deployment/config/"


def lints_of(situation: Situation, config: CheckpointConfig) -> Iterator[Lint]:
    """Yield a lint if the next failed checkpoint restarts the job.

    Flink counts the failures since the newest completed checkpoint, and begins anew with a restart. It counts expired
    ones like others; a checkpoint that is aborted from outside neither counts nor ends the row.
    """
    tolerated = config.tolerable_failed_count
    if not tolerated or tolerated >= UNLIMITED_COUNT:
        return
    restarted_at = max((at for at, _ in situation.evidence.exceptions), default=None)
    row = _failures_in_a_row(situation, restarted_at)
    if len(row) < tolerated:
        return
    expired = sum(h.failure_reason is FailureReason.EXPIRED for h in row)
    which = "The newest checkpoint" if len(row) == 1 else f"The newest {len(row)} checkpoints"
    how = "expired" if expired == len(row) else "failed"
    tolerates = "1 failure is" if tolerated == 1 else f"{tolerated} failures in a row are"
    yield Lint(
        "tolerance-used-up",
        LintLevel.DANGER,
        "One more failed checkpoint restarts the job",
        f"{which} {how}, and {tolerates} tolerated. An expired checkpoint counts like any other failure. After the"
        " restart, the job replays its input since the newest completed checkpoint.",
        "Cure what the verdict names. A larger number takes effect only with a restart, which replays as much.",
        f"{_CONFIG_DOCS}#execution-checkpointing-tolerable-failed-checkpoints",
    )


def _failures_in_a_row(situation: Situation, restarted_at: datetime | None) -> list[CheckpointHeader]:
    """Return the failures that count since the newest completed checkpoint or restart, the newest first."""
    row: list[CheckpointHeader] = []
    for checkpoint in reversed(situation.evidence.checkpoints):
        header = checkpoint.header
        is_before = restarted_at is not None and header.triggered_at < restarted_at
        if header.status is CheckpointStatus.COMPLETED or is_before:
            break
        is_counted = header.failure_reason is not None and header.failure_reason.is_counted
        if header.kind is CheckpointKind.CHECKPOINT and is_counted:
            row.append(header)
    return row
