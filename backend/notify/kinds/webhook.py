"""Sends alerts to the generic webhook, version 4.

Source: the webhook payload in Alertmanager's documentation.
"""

from __future__ import annotations

from collections.abc import Sequence

from backend.alerting.delivery import DeliveryKind
from backend.alerting.lifecycle import Alert
from backend.alerting.payloads import Json, Links, rfc3339, texts_of
from backend.notify.kinds.port import Destination, Message, Notice

_NEVER = "0001-01-01T00:00:00Z"


class Webhook:
    """Sends each change of an alert in a message of its own. The whole URL of the receiver may be secret."""

    def message(self, notices: Sequence[Notice], to: Destination) -> Message:
        """Return the message about one change of one alert."""
        (notice,) = notices
        alert, change = notice.alert, notice.change
        body = _body(alert, to.links, is_firing=change is DeliveryKind.FIRING, receiver=to.name)
        return Message(to.url, body, key=f"{alert.id}-{change}")


def _body(alert: Alert, links: Links, *, is_firing: bool, receiver: str) -> Json:
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
