"""The kinds and states of receivers and deliveries, which the store, the services and the CLI share."""

from __future__ import annotations

from enum import StrEnum


class ReceiverKind(StrEnum):
    """The protocol with which alerts are sent to a receiver."""

    ALERTMANAGER = "alertmanager"
    WEBHOOK = "webhook"


class ReceiverOrigin(StrEnum):
    """How a receiver was added: through the API or from the configuration."""

    API = "api"
    CONFIGURATION = "configuration"


class DeliveryKind(StrEnum):
    """The change of an alert that a delivery reports to the receiver."""

    FIRING = "firing"
    RESOLVED = "resolved"


class DeliveryState(StrEnum):
    """The state of a delivery to one receiver."""

    DUE = "due"
    DELIVERED = "delivered"
    ABANDONED = "abandoned"
    """The delivery failed and is not attempted again."""
