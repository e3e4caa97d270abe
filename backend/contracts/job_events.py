"""Wire shape of the events in the history of a job."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from backend.contracts.model import Model


class JobEventOut(Model):
    """An event of a job, shown as a vertical line on its timeline. Its time is on the engine's clock."""

    at: datetime
    kind: Literal[
        "run-started",
        "run-ended",
        "restarted",
        "configuration-changed",
        "rescaled",
        "exception",
        "rows-lost",
        "pod-ended",
        "restored",
    ]
    run_id: str
    text: str
