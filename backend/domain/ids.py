"""Opaque identities. An id is compared and printed, never parsed.

A *job* is ours: (deployment, job name), stable over redeployments. A *run* is one life of a job at its engine:
(target, engine's run id, start time). Checkpoint ids are the engine's; they restart with a run.
"""

from __future__ import annotations

import hashlib
from typing import NewType

TargetId = NewType("TargetId", str)
JobId = NewType("JobId", str)
RunId = NewType("RunId", str)
VertexId = NewType("VertexId", str)
EngineRunId = NewType("EngineRunId", str)


def _digest(*parts: str) -> str:
    # The length prefix keeps ("a", "bc") and ("ab", "c") apart.
    text = "".join(f"{len(p)}:{p}" for p in parts)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def job_id(*, deployment: str, name: str) -> JobId:
    """Our id of the job called ``name`` in ``deployment`` (the target's deployment label, else its address)."""
    return JobId("j" + _digest(deployment, name))


def run_id(*, target: TargetId, engine_run_id: EngineRunId, started_at_ms: int | None) -> RunId:
    """Our id of one run; ``started_at_ms`` is since the epoch, since Flink repeats job ids in some HA setups.

    None where the engine's id is of one run alone, as Spark's query id with its run id is: when the run started may
    then be learned later.
    """
    return RunId("r" + _digest(target, engine_run_id, "" if started_at_ms is None else str(started_at_ms)))


def target_id(*, url: str) -> TargetId:
    """Our id of the target at ``url`` (normalised by the caller)."""
    return TargetId("t" + _digest(url))
