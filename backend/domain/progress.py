"""The outlook of a checkpoint in progress, which the analysis, the API and the pages share."""

from __future__ import annotations

from enum import StrEnum


class Outlook(StrEnum):
    """What is predicted for a checkpoint in progress."""

    FINISHES = "finishes"
    TIMES_OUT = "times-out"
    UNKNOWN = "unknown"
