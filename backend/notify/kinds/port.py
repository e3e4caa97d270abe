"""The port to the kinds of receivers: what a kind is given, and the message that it makes of it.

The traits of a kind that the other packages must know are in ``backend.domain.receivers``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol

from backend.alerting.delivery import DeliveryKind
from backend.alerting.lifecycle import Alert
from backend.alerting.payloads import Json, Links


@dataclass(frozen=True, slots=True)
class Notice:
    """An alert, and the change of it to report."""

    alert: Alert
    change: DeliveryKind


@dataclass(frozen=True, slots=True)
class Destination:
    """The receiver of a message, and what the message needs to know besides its alerts.

    ``url`` is the stored URL of the receiver, or the reference to it. ``resend_s`` is the pause between two messages
    about the same alert to a receiver that is sent firing alerts again.
    """

    name: str
    url: str
    links: Links
    now: datetime
    resend_s: float


def as_bearer_token(message: Message, credential: str) -> Message:
    """Return the message with the credential in its Authorization header."""
    return replace(message, headers={**message.headers, "Authorization": f"Bearer {credential}"})


@dataclass(frozen=True, slots=True)
class Message:
    """One POST of JSON. ``url`` may be a reference to the URL.

    ``key`` is sent as the Idempotency-Key. It must be the same for every attempt to deliver the same message.
    ``with_credential`` puts the receiver's credential where receivers of this kind read it.
    """

    url: str
    body: Json | list[Json]
    key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    with_credential: Callable[[Message, str], Message] = as_bearer_token


class KindOfReceiver(Protocol):
    """A kind of receiver: how alerts are sent to it."""

    def message(self, notices: Sequence[Notice], to: Destination) -> Message:
        """Return the message that reports ``notices``, of which there is at least one.

        There is exactly one unless receivers of this kind are sent firing alerts again.
        """
        ...
