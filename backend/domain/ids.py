"""Opaque ids, which are compared and printed but never parsed.

A *job* is identified by (deployment, job name) and stays the same over redeployments. A *run* is one execution of a
job on its engine, identified by (target, the engine's run id, start time). The engine assigns checkpoint ids, which
start again with each run.
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
    # The length in front of each part makes ("a", "bc") differ from ("ab", "c").
    text = "".join(f"{len(p)}:{p}" for p in parts)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def job_id(*, deployment: str, name: str) -> JobId:
    """Return the id of a job. ``deployment`` is the target's deployment label or, if it has none, its address."""
    return JobId("j" + _digest(deployment, name))


def run_id(*, target: TargetId, engine_run_id: EngineRunId, started_at_ms: int | None) -> RunId:
    """Return the id of one run. It includes the start time, because Flink repeats job ids in some HA setups.

    ``started_at_ms`` is in milliseconds since the epoch. It is None if the engine's id alone identifies one run. This
    is so for Spark, whose run id at the engine consists of the query id and the run id. The start of such a run may
    become known only later.
    """
    return RunId("r" + _digest(target, engine_run_id, "" if started_at_ms is None else str(started_at_ms)))


def target_id(*, url: str) -> TargetId:
    """Return the id of the target at ``url``. The caller must have normalised ``url``."""
    return TargetId("t" + _digest(url))
