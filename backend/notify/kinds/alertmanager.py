"""Sends alerts to Alertmanager's ``POST /api/v2/alerts``.

Source: Alertmanager's ``api/v2/openapi.yaml`` (labels identify an alert, and an ``endsAt`` in the past resolves it). A
firing alert has an ``endsAt`` in the future, as in messages from Prometheus. Alertmanager resolves the alert at that
time unless it is sent again.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from backend.alerting.lifecycle import Alert
from backend.alerting.payloads import Json, Links, rfc3339, texts_of
from backend.notify.kinds.port import Destination, Message, Notice


class Alertmanager:
    """Sends all alerts in one message. The receiver's URL is the root of an Alertmanager."""

    def message(self, notices: Sequence[Notice], to: Destination) -> Message:
        """Return the message with each of the alerts once."""
        ends_at = _valid_until(to.now, to.resend_s)
        unique = {n.alert.id: n.alert for n in notices}.values()
        return Message(_alerts_url(to.url), [_entry(a, to.links, ends_at=ends_at) for a in unique])


def _alerts_url(root: str) -> str:
    # The root may already contain the path.
    return root if root.endswith("/api/v2/alerts") else f"{root.rstrip('/')}/api/v2/alerts"


def _entry(alert: Alert, links: Links, *, ends_at: datetime) -> Json:
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


def _valid_until(now: datetime, resend_s: float) -> datetime:
    """Return the time at which Alertmanager resolves a firing alert unless the alert is sent again.

    As in Prometheus, this is ``now`` plus four times the pause between two sends.
    """
    return now + timedelta(seconds=4 * resend_s)
