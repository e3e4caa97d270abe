"""Builds message bodies for Alertmanager's ``POST /api/v2/alerts``.

Source: Alertmanager's ``api/v2/openapi.yaml`` (labels identify an alert, and an ``endsAt`` in the past resolves it). A
firing alert has an ``endsAt`` in the future, as in messages from Prometheus. Alertmanager resolves the alert at that
time unless it is sent again.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from backend.alerting.lifecycle import Alert
from backend.alerting.payloads import Json, Links, rfc3339, texts_of


def for_alertmanager(alert: Alert, links: Links, *, ends_at: datetime) -> Json:
    """Return one entry of the array for Alertmanager.

    ``ends_at`` is the time at which Alertmanager resolves the alert unless the alert is sent again.
    """
    return {
        "labels": dict(alert.identity.labels),
        "annotations": texts_of(alert, links),
        "startsAt": rfc3339(alert.fired_at or alert.began_at),
        "endsAt": rfc3339(alert.ended_at or ends_at),
        "generatorURL": links.alert(alert.id),
    }


def valid_until(now: datetime, resend_s: float) -> datetime:
    """Return the time at which Alertmanager resolves a firing alert unless the alert is sent again.

    As in Prometheus, this is ``now`` plus four times the pause between two sends.
    """
    return now + timedelta(seconds=4 * resend_s)
