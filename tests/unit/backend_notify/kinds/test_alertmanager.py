"""The message to an Alertmanager: all alerts in one array, each with the time at which it ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.alerting.delivery import DeliveryKind
from backend.alerting.payloads import Links
from backend.notify.kinds.alertmanager import Alertmanager
from backend.notify.kinds.port import Destination, Notice
from tests.support.drawn_alerts import drawn_alerts
from tests.support.observations import NOW

_LINKS = Links("https://barrierscope.example")


@pytest.mark.parametrize("root", ["http://pager:9093", "http://pager:9093/", "http://pager:9093/api/v2/alerts"])
def test_the_url_of_a_receiver_is_the_root_or_holds_the_path_already(root):
    notices = [Notice(alert, DeliveryKind.FIRING) for alert in drawn_alerts(seed=1, count=1)]

    message = Alertmanager().message(notices, Destination("on-call", root, _LINKS, NOW, 60.0))

    assert (message.url, message.key) == ("http://pager:9093/api/v2/alerts", None)


def test_each_alert_is_there_once_and_ends_after_four_pauses_unless_it_has_ended():
    firing, ended = (
        replace(a, ended_at=end) for a, end in zip(drawn_alerts(seed=1, count=2), (None, NOW), strict=True)
    )
    changes = [(firing, DeliveryKind.FIRING), (ended, DeliveryKind.FIRING), (ended, DeliveryKind.RESOLVED)]

    to = Destination("on-call", "http://pager:9093", _LINKS, NOW, 60.0)
    message = Alertmanager().message([Notice(*change) for change in changes], to)

    assert [entry["endsAt"] for entry in message.body] == ["2026-11-21T12:04:00.000Z", "2026-11-21T12:00:00.000Z"]
