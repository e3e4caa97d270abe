"""The kinds of receivers of alerts, which the store, the services, the API, the pages and the CLI share."""

from __future__ import annotations

from enum import StrEnum


class ReceiverKind(StrEnum):
    """The protocol with which alerts are sent to a receiver."""

    ALERTMANAGER = "alertmanager"
    WEBHOOK = "webhook"
