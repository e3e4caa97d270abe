"""What of a job's model stays in memory while answers may name it, and for how many models there is room; pure.

The values from which a model is built are many more than the model has, and answers show few of them. A large job has
hundreds of megabytes of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from backend.advisor.twin.model.observed import terminal_checkpoints
from backend.analysis.assembling import RunAt
from backend.analysis.measures.evidence import JobEvidence
from backend.domain.checkpoint import VertexDetail, largest
from backend.domain.pressure import VertexPressure

SUBTASKS_MAX: Final = 64_000
"""The kept models have at most so many subtasks in all. Each takes one to two kilobytes."""


def shown_part(evidence: JobEvidence) -> JobEvidence:
    """Return the part of the evidence of a model that answers show as measured.

    It has the checkpoints, each with the details of the vertex that has the longest sync part, and the numbers
    and rates of records in the readings of the sources.
    """
    sources = {v.id for v in evidence.topology.vertices if not evidence.topology.upstream(v.id)}
    run = RunAt(topology=evidence.topology, config=evidence.config, restart_count=evidence.restart_count)
    return run.evidence(
        now=evidence.now,
        checkpoints=(
            replace(c, details=(max(c.details, key=_longest_sync_ms),)) for c in terminal_checkpoints(evidence)
        ),
        readings=(
            VertexPressure(
                r.vertex_id,
                r.observed_at,
                busy_ratio=(),
                backpressured_ratio=(),
                idle_ratio=(),
                records_out_count=r.records_out_count,
                records_out_per_s=r.records_out_per_s,
            )
            for r in evidence.pressure
            if r.vertex_id in sources
        ),
    )


def _longest_sync_ms(detail: VertexDetail) -> int:
    longest_ms = largest(detail.sync_duration_ms)
    return -1 if longest_ms is None else longest_ms


def subtask_count(evidence: JobEvidence) -> int:
    """Return the number of subtasks of the job, with which its model grows."""
    return sum(v.parallelism for v in evidence.topology.vertices)


def dropped_count(sizes: Sequence[int], most: int = SUBTASKS_MAX) -> int:
    """Return how many of the oldest must go so that the others are at most ``most`` together.

    ``sizes`` are in the order of age, the oldest first. The newest one stays even if it is too large.
    """
    left = sum(sizes)
    for count, size in enumerate(sizes[:-1]):
        if left <= most:
            return count
        left -= size
    return max(0, len(sizes) - 1)
