"""The kinds of receivers of alerts, which the store, the services, the API, the pages and the CLI share.

What a message to a receiver of each kind contains is in ``backend.notify.kinds``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class ReceiverKind(StrEnum):
    """The protocol with which alerts are sent to a receiver."""

    ALERTMANAGER = "alertmanager"
    WEBHOOK = "webhook"


@dataclass(frozen=True, slots=True)
class ReceiverTraits:
    """The names of a kind of receiver, and how it differs from the other kinds."""

    title: str
    noun: str
    """The name in a sentence, with its article."""
    address: str
    """The name of the address that a receiver of this kind has."""
    has_secret_address: bool = False
    """Whether the path or query of an address may be secret. A reference to the address is then allowed."""
    is_sent_again: bool = False
    """Whether an alert is sent again and again while it fires.

    Such a receiver resolves an alert that is not sent again, so it gets the Watchdog too. A message holds all alerts
    that are due.
    """


TRAITS: Final[Mapping[ReceiverKind, ReceiverTraits]] = {
    ReceiverKind.ALERTMANAGER: ReceiverTraits("Alertmanager", "an Alertmanager", "root", is_sent_again=True),
    ReceiverKind.WEBHOOK: ReceiverTraits("Webhook", "a webhook", "address", has_secret_address=True),
}
SENT_AGAIN: Final = tuple(kind for kind, traits in TRAITS.items() if traits.is_sent_again)
