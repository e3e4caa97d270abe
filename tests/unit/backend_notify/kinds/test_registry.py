"""Every kind of receiver has traits and a way to send, and its messages say what the alert is."""

from __future__ import annotations

import json

import pytest

from backend.alerting.delivery import DeliveryKind
from backend.alerting.payloads import Links
from backend.domain.receivers import TRAITS, ReceiverKind
from backend.notify.kinds.port import Destination, Notice
from backend.notify.kinds.registry import KINDS
from tests.support.drawn_alerts import drawn_alerts
from tests.support.observations import NOW

_TO = Destination("on-call", "https://pager.example/hook", Links("https://barrierscope.example"), NOW, 60.0)


def test_every_kind_has_traits_and_a_way_to_send():
    assert set(KINDS) == set(TRAITS) == set(ReceiverKind)


@pytest.mark.parametrize("change", DeliveryKind)
@pytest.mark.parametrize("kind", ReceiverKind)
def test_a_message_of_every_kind_goes_to_its_receiver_and_says_what_the_alert_is(kind, change):
    (alert,) = drawn_alerts(seed=1, count=1)

    message = KINDS[kind].message([Notice(alert, change)], _TO)

    assert message.url.startswith("https://pager.example/")
    assert alert.reading.annotations["summary"] in json.dumps(message.body)


@pytest.mark.parametrize("kind", [kind for kind, traits in TRAITS.items() if not traits.is_sent_again])
def test_both_changes_of_an_alert_have_their_own_keys_and_every_attempt_has_the_same(kind):
    (alert,) = drawn_alerts(seed=1, count=1)

    keys = [KINDS[kind].message([Notice(alert, change)], _TO).key for change in (*DeliveryKind, *DeliveryKind)]

    assert len(set(keys)) == 2
    assert None not in keys
