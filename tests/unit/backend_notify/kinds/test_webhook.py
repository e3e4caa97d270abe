"""The message to a webhook: one change of one alert, as in Alertmanager's documentation."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from backend.alerting.delivery import DeliveryKind
from backend.alerting.payloads import Links
from backend.notify.kinds.port import Destination, Notice
from backend.notify.kinds.webhook import Webhook
from tests.support.drawn_alerts import drawn_alerts
from tests.support.observations import NOW

_TO = Destination("on-call", "env:BARRIERSCOPE_SECRET_HOOK", Links("https://barrierscope.example"), NOW, 60.0)


@pytest.mark.parametrize(
    ("change", "is_ended", "ends_at"),
    [
        (DeliveryKind.FIRING, True, "0001-01-01T00:00:00Z"),
        (DeliveryKind.RESOLVED, False, "0001-01-01T00:00:00Z"),
        (DeliveryKind.RESOLVED, True, "2026-11-21T12:00:05.000Z"),
    ],
)
def test_a_message_says_which_change_it_reports_and_ends_only_a_resolved_alert(change, is_ended, ends_at):
    (alert,) = drawn_alerts(seed=1, count=1)
    alert = replace(alert, ended_at=NOW + timedelta(seconds=5) if is_ended else None)

    message = Webhook().message([Notice(alert, change)], _TO)

    assert message.url == "env:BARRIERSCOPE_SECRET_HOOK"
    assert message.key == f"{alert.id}-{change}"
    assert (message.body["receiver"], message.body["status"]) == ("on-call", change.value)
    (entry,) = message.body["alerts"]
    assert (entry["status"], entry["endsAt"]) == (change.value, ends_at)
    assert entry["labels"] == alert.identity.labels == message.body["commonLabels"]
