"""Opaque ids. An id is compared and printed, never parsed.

A *job* is (deployment, job name) and stays the same over redeployments. A *run* is one execution of a job at its
engine: (target, engine's run id, start time). The engine assigns checkpoint ids, which start again with each run.
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
    """The id of job ``name`` in ``deployment``, which is the target's deployment label, or else its address."""
    return JobId("j" + _digest(deployment, name))


def run_id(*, target: TargetId, engine_run_id: EngineRunId, started_at_ms: int | None) -> RunId:
    """The id of one run. It includes the start, ms since the epoch, because Flink repeats job ids in some HA setups.

    ``started_at_ms`` is None if the engine's id identifies one run, as Spark's query id with its run id does. The start
    of the run may then become known later.
    """
    return RunId("r" + _digest(target, engine_run_id, "" if started_at_ms is None else str(started_at_ms)))


def target_id(*, url: str) -> TargetId:
    """The id of the target at ``url``, which the caller has normalised."""
    return TargetId("t" + _digest(url))
