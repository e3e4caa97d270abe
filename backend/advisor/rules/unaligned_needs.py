"""Adds to a proposal of unaligned checkpoints what Flink demands before it starts a job with them (R-UC-10).

Flink does not start a job with unaligned checkpoints and more than one checkpoint at a time
(``CheckpointCoordinatorConfiguration``), or with an exchange of a custom partitioner (``StreamGraph``, before 2.0
``StreamingJobGraphGenerator``) unless the mode is forced.
"""

from __future__ import annotations

from dataclasses import replace

from backend.advisor.advice import Setting
from backend.advisor.situation import Situation
from backend.domain.advice import Mode


def with_needed(situation: Situation, current: Setting, proposed: Setting) -> tuple[Setting, Setting]:
    """Return the settings now and the proposed ones, with those that unaligned checkpoints need as well."""
    is_new = situation.mode is Mode.ALIGNED and proposed.mode not in (None, Mode.ALIGNED)
    if not is_new or not situation.engine.is_flink_release:
        return current, proposed
    config = situation.evidence.config
    concurrent = config.max_concurrent if config is not None else None
    if concurrent is not None and concurrent > 1:
        current, proposed = replace(current, max_concurrent=concurrent), replace(proposed, max_concurrent=1)
    if any(e.ship_strategy == "CUSTOM" for e in situation.evidence.topology.edges):
        proposed = replace(proposed, is_unaligned_forced=True)
    return current, proposed


def forced_risk(proposed: Setting) -> tuple[str, ...]:
    """Return what the proposal risks by forcing unaligned checkpoints; nothing if it does not force them."""
    if not proposed.is_unaligned_forced:
        return ()
    return (
        "the job has an exchange with a custom partitioner, for which Flink refuses unaligned checkpoints unless they"
        " are forced: after a change of the parallelism, in-flight data may go to the wrong subtask",
    )
