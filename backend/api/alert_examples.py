"""Examples of alerting for the OpenAPI document, as values of the contract."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from backend.contracts import alerts as wire

_AT = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
_JOB, _RUN = "j0f3a9c2d1e4b5a67", "r5b1d2c3e4f5a6b78"
_CHECKPOINT = f"/api/v1/jobs/{_JOB}/runs/{_RUN}/checkpoints/412"
_PAGE = f"http://127.0.0.1:8050/ui/jobs/{_JOB}/runs/{_RUN}/checkpoints/412"

RULE_PATCH: Final = {"for_s": 30, "thresholds": {"expired_min_count": 2}}
SILENCE_IN: Final = {
    "matchers": [{"name": "job", "value": "orders-enrichment"}],
    "ends_at": "2026-11-21T14:00:00Z",
    "reason": "planned migration of the state store",
    "author": "maria",
}
RECEIVER_IN: Final = {"name": "on-call", "kind": "alertmanager", "url": "http://alertmanager:9093"}

ALERT: Final = wire.AlertOut(
    id="a81c3f0d92b7e645",
    rule="CheckpointExpired",
    severity="warning",
    state="firing",
    fingerprint="3b1f0c9a7d2e4856",
    labels={"alertname": "CheckpointExpired", "severity": "warning", "job": "orders-enrichment", "job_id": _JOB},
    summary="orders-enrichment: checkpoint 412 expired after 60.0 s",
    description="orders-enrichment: checkpoint 412 expired after 60.0 s. Look at enrich subtasks 0 and 1 on worker-3,"
    " phase start-delay. Every subtask is busy all the time, and barriers queue before it.",
    reason="orders-enrichment: checkpoint 412 expired after 60.0 s",
    is_unknown=False,
    vertex="enrich",
    subtasks="0, 1",
    hosts="worker-3",
    phase="start-delay",
    job_id=_JOB,
    target_id="t9c8b7a6d5e4f3021",
    began_at=_AT,
    fired_at=_AT,
    ended_at=None,
    ended_reason=None,
    evaluated_at=_AT + timedelta(seconds=30),
    value=1.0,
    silenced_by=[],
    checkpoints=[wire.LinkedCheckpointOut(run_id=_RUN, checkpoint_id=412, link=_CHECKPOINT)],
    permalink=_PAGE,
)
ALERT_DETAIL: Final = wire.AlertDetailOut(
    **ALERT.model_dump(),
    events=[wire.AlertEventOut(at=_AT, before="inactive", after="firing", reason=ALERT.summary)],
    deliveries=[
        wire.DeliveryOut(
            receiver_id="w4e1f7a0b9c2d3568",
            receiver="on-call",
            kind="firing",
            state="delivered",
            added_at=_AT,
            attempt_count=1,
            next_attempt_at=None,
            delivered_at=_AT + timedelta(seconds=1),
            sent_count=1,
            last_sent_at=_AT + timedelta(seconds=1),
            result="HTTP 200",
            attempts=[
                wire.AttemptOut(number=1, at=_AT + timedelta(seconds=1), duration_ms=12, is_ok=True, result="HTTP 200")
            ],
        )
    ],
    episodes=[wire.EpisodeOut(id=ALERT.id, began_at=_AT, fired_at=_AT, ended_at=None, state="firing")],
    rule_meaning="A checkpoint was not complete within its timeout.",
    runbook_link="/api/v1/alert-rules/CheckpointExpired/runbook",
    as_of=_AT + timedelta(seconds=32),
)
RULE: Final = wire.AlertRuleOut(
    name="CheckpointExpired",
    meaning="A checkpoint was not complete within its timeout.",
    severity="warning",
    subject="job",
    is_enabled=True,
    for_s=0,
    keep_firing_for_s=0,
    thresholds=[
        wire.ThresholdOut(
            name="window_count",
            value=3,
            default=3,
            least=1,
            most=20,
            is_whole=True,
            meaning="among the newest so many that ended",
        )
    ],
    version=0,
    runbook_link="/api/v1/alert-rules/CheckpointExpired/runbook",
    open_count=1,
)
RUNBOOK: Final = wire.RunbookOut(rule="CheckpointExpired", markdown="# CheckpointExpired\n\nA checkpoint ...\n")
SILENCE: Final = wire.SilenceOut(
    id="s2c9d8e7f6a5b4c31",
    matchers=[wire.MatcherOut(name="job", value="orders-enrichment")],
    starts_at=_AT,
    ends_at=_AT + timedelta(hours=2),
    reason="planned migration of the state store",
    author="maria",
    added_at=_AT,
    state="active",
    hidden_count=1,
)
RECEIVER: Final = wire.ReceiverOut(
    id="w4e1f7a0b9c2d3568",
    name="on-call",
    kind="alertmanager",
    url="http://alertmanager:9093",
    credential="env:BARRIERSCOPE_SECRET_ALERTMANAGER",
    origin="api",
    added_at=_AT,
    due_count=0,
)
RECEIVER_TEST: Final = wire.ReceiverTestOut(is_ok=True, result="HTTP 200", duration_ms=14)
