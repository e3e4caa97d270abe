"""What failures and the checkpoints after them say of outages: when each began, and when the job ran again.

A failure is reported when the engine notices it. A task that fails reports this at once. A worker that dies cannot, so
the engine notices its death by the heartbeats that it does not answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import numpy as np

from backend.advisor.advice import Interval
from backend.advisor.twin.model.snapshots import Recorded
from backend.domain.checkpoint import CheckpointConfig

RESTART_MS: Final = Interval(3_000.0, 1_000.0, 15_000.0)
"""The assumed time to cancel and deploy a job after a failure was noticed, if no failure was observed."""
LOST_WORKER_MS: Final = Interval(13_300.0, 10_300.0, 17_800.0)
"""The time until the death of a worker is noticed, with Flink's defaults (mean, and 90 % of the deaths).

The JobMaster and the ResourceManager each send a heartbeat every 10 s (``heartbeat.interval``). The first of them whose
second heartbeat in a row cannot be delivered (``heartbeat.rpc-failure-threshold``) reports the worker. That is 10 s and
the smaller of two random parts of 10 s after the death. If tasks on other workers see the broken connection, the job
fails at once, but is deployed to the dead worker again until then.
"""
_SILENT_WORKER_MS: Final = 45_000.0
"""The same if the host does not refuse messages: half of an interval less than ``heartbeat.timeout``, 50 s."""
_OUTAGE_INTERVAL_MS: Final = 60_000
_UNREACHABLE: Final = "is no longer reachable"
_TIMED_OUT: Final = ("Heartbeat of TaskManager", "timed out")
_LOST_SIGNS: Final = (_UNREACHABLE, _TIMED_OUT[0], "RemoteTransportException", "TaskManager was lost")
_NOT_DEPLOYED: Final = ("RecipientUnreachableException", "NoResourceAvailableException")


@dataclass(frozen=True, slots=True)
class Outages:
    """The observed time from a failure until the job ran again, and whether most failures were deaths of workers."""

    outage_ms: Interval
    is_worker_lost: bool


def outages_of(
    recorded: Sequence[Recorded], failures: Sequence[tuple[datetime, str]], config: CheckpointConfig | None
) -> Outages | None:
    """Return the time from a failure until the job runs again, from the first checkpoint that each failure delayed.

    ``failures`` are times and texts. The coordinator triggers the checkpoint at a random time within an interval after
    the job runs again, so the result says little, and is None, if the interval is longer than ``_OUTAGE_INTERVAL_MS``.
    Of failures without a checkpoint between them only the last counts, unless it says that the job could not be
    deployed: then the job has not run since the failure before.
    """
    interval_ms = None if config is None else config.interval_ms
    if interval_ms is None or interval_ms > _OUTAGE_INTERVAL_MS or not recorded:
        return None
    triggers = sorted(r.checkpoint.header.triggered_at for r in recorded)
    gaps: dict[datetime, float] = {}
    lost: dict[datetime, bool] = {}
    for failed_at, text in sorted(failures):
        after = next((t for t in triggers if t > failed_at), None)
        if after is None or failed_at < triggers[0]:
            continue
        if after in gaps and any(sign in text for sign in _NOT_DEPLOYED):
            continue
        gaps[after] = (after - failed_at).total_seconds() * 1000 + _unnoticed_ms(text)
        lost[after] = any(sign in text for sign in _LOST_SIGNS)
    if not gaps:
        return None
    middle = float(np.median(list(gaps.values())))
    outage = Interval(
        max(middle - interval_ms / 2, min(gaps.values()) / 2),
        max(0.0, min(gaps.values()) - interval_ms),
        max(gaps.values()),
    )
    return Outages(outage, sum(lost.values()) > len(lost) / 2)


def _unnoticed_ms(text: str) -> float:
    if _UNREACHABLE in text:
        return LOST_WORKER_MS.value
    return _SILENT_WORKER_MS if all(part in text for part in _TIMED_OUT) else 0.0
