"""How alerts are sent to each kind of receiver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from backend.domain.receivers import ReceiverKind
from backend.notify.kinds.alertmanager import Alertmanager
from backend.notify.kinds.port import KindOfReceiver
from backend.notify.kinds.webhook import Webhook

KINDS: Final[Mapping[ReceiverKind, KindOfReceiver]] = {
    ReceiverKind.ALERTMANAGER: Alertmanager(),
    ReceiverKind.WEBHOOK: Webhook(),
}
