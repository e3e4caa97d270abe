"""Builds message bodies for the generic webhook, version 4.

Source: the webhook payload in Alertmanager's documentation.
"""

from __future__ import annotations

from backend.alerting.lifecycle import Alert
from backend.alerting.payloads import Json, Links, rfc3339, texts_of

_NEVER = "0001-01-01T00:00:00Z"


def for_webhook(alert: Alert, links: Links, *, is_firing: bool, receiver: str) -> Json:
    """Return the body for a webhook, which contains this one alert."""
    texts, labels = texts_of(alert, links), dict(alert.identity.labels)
    status = "firing" if is_firing else "resolved"
    entry = {
        "status": status,
        "labels": labels,
        "annotations": texts,
        "startsAt": rfc3339(alert.fired_at or alert.began_at),
        "endsAt": _NEVER if is_firing or alert.ended_at is None else rfc3339(alert.ended_at),
        "generatorURL": links.alert(alert.id),
        "fingerprint": alert.identity.fingerprint,
    }
    return {
        "version": "4",
        "groupKey": f'{{}}:{{alertname="{alert.identity.rule}", fingerprint="{alert.identity.fingerprint}"}}',
        "truncatedAlerts": 0,
        "status": status,
        "receiver": receiver,
        "groupLabels": {"alertname": alert.identity.rule},
        "commonLabels": labels,
        "commonAnnotations": texts,
        "externalURL": links.base_url,
        "alerts": [entry],
    }
