"""Decides whether the known checkpoints of a run are all that it has had, so that a sentence may say "so far".

The engine's history and the evidence hold only the newest checkpoints, and a run that was restored continues the ids
of the run before it. A sentence on the only checkpoint, or on all of them, would be wrong then.
"""

from __future__ import annotations

from backend.analysis.measures.evidence import JobEvidence
from backend.domain.checkpoint import CheckpointStatus

# Flink counts checkpoints from 1, Spark counts batches from 0.
_FIRST_ID_MAX = 1


def has_all(evidence: JobEvidence) -> bool:
    """Return whether the evidence has every checkpoint that has ended so far.

    Their ids begin with the first one, and the engine counted no others.
    """
    headers = [c.header for c in evidence.checkpoints]
    counts = evidence.counts
    ended_count = sum(h.status.is_terminal for h in headers)
    if counts is not None and counts.completed + counts.failed > ended_count:
        return False
    return min((h.checkpoint_id for h in headers), default=0) <= _FIRST_ID_MAX


def none_completed(evidence: JobEvidence) -> bool:
    """Return whether it is known that no checkpoint has completed so far."""
    if any(c.header.status is CheckpointStatus.COMPLETED for c in evidence.checkpoints):
        return False
    if evidence.counts is not None:
        return evidence.counts.completed == 0
    return has_all(evidence)
