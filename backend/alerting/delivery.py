"""The closed sets of receivers and deliveries that the store, the services and the CLI share."""

from __future__ import annotations

from enum import StrEnum


class ReceiverKind(StrEnum):
    """The protocol of a receiver."""

    ALERTMANAGER = "alertmanager"
    WEBHOOK = "webhook"


class ReceiverOrigin(StrEnum):
    """What added a receiver."""

    API = "api"
    CONFIGURATION = "configuration"


class DeliveryKind(StrEnum):
    """The change of an alert that a delivery reports."""

    FIRING = "firing"
    RESOLVED = "resolved"


class DeliveryState(StrEnum):
    """The state of a delivery."""

    DUE = "due"
    DELIVERED = "delivered"
    ABANDONED = "abandoned"
    """It is not attempted again."""
