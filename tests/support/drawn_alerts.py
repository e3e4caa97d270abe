"""Episodes of alerts that a seed chooses: few subjects, times close together, and causes that are often unknown."""

from __future__ import annotations

import random
from datetime import timedelta

from backend.alerting.labels import AlertId
from backend.alerting.lifecycle import Alert, AlertState, Identity, Reading, ReadingKind
from backend.domain.ids import JobId, TargetId
from tests.support.observations import NOW

RULES = ("CheckpointExpired", "ConsecutiveFailures", "CheckpointStuck")


def drawn_alerts(seed: int, count: int, *, is_cause_known: bool = True) -> list[Alert]:
    """Return ``count`` episodes within about two hours. A tenth of the episodes are open."""
    rnd = random.Random(seed)
    return [_alert(rnd, number, is_cause_known=is_cause_known) for number in range(count)]


def _alert(rnd: random.Random, number: int, *, is_cause_known: bool) -> Alert:
    began_at = NOW - timedelta(minutes=rnd.randrange(120))
    ended_at = None if rnd.random() < 0.1 else began_at + timedelta(minutes=rnd.randrange(15))
    fired_at = began_at if rnd.random() < 0.8 else None
    state = (AlertState.FIRING if fired_at else AlertState.PENDING) if ended_at is None else AlertState.RESOLVED
    if ended_at is not None and fired_at is None:
        state = AlertState.INACTIVE
    texts = {"summary": f"alert {number}", "vertex": rnd.choice(["map", "join", "not known"])}
    texts["phase"] = rnd.choice(["start-delay", "alignment", "async", "not known"])
    if is_cause_known and rnd.random() < 0.7:
        texts["cause"] = rnd.choice(["skew", "store"])
    job, target = rnd.choice([("j1", "t1"), ("j2", "t1"), (None, "t1"), (None, None)])
    rule = rnd.choice(RULES)
    labels = {"alertname": rule, "severity": "warning"} | ({"job_name": f"name of {job}"} if job else {})
    identity = Identity(
        rule,
        rnd.choice(["critical", "warning"]),
        f"f{number}",
        labels,
        None if job is None else JobId(job),
        None if target is None else TargetId(target),
    )
    return Alert(
        id=AlertId(f"a{number:04}"),
        identity=identity,
        state=state,
        began_at=began_at,
        changed_at=ended_at or began_at,
        evaluated_at=ended_at or began_at,
        reading=Reading(ReadingKind.ACTIVE, "it is so", 1.0, texts),
        fired_at=fired_at,
        ended_at=ended_at,
        ended_reason=None if ended_at is None else "it is over",
    )
