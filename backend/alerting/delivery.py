"""The kinds and states of deliveries and the origins of receivers, which the store and the services share."""

from __future__ import annotations

from enum import StrEnum


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
