"""Knows how far the time of a reading may be from the time of its values.

The engine fetches metrics at intervals, so the values of a reading may be one interval old. Two readings come from two
fetches (``collectors.flink.freshness``), but the time between these fetches may differ from that between the readings
by up to one interval. So a count that grew little between two readings may have grown in much less time.
"""

from __future__ import annotations

import re

from backend.analysis.measures.evidence import JobEvidence
from backend.domain.pressure import FETCH_INTERVAL_KEY

_MS = re.compile(r"(\d+) ms")


def doubt_s(evidence: JobEvidence) -> float:
    """Return by how many seconds the time between two readings may differ from that between their values.

    It is 0 for an engine that keeps no copies of its metrics, or whose settings are not known.
    """
    match = _MS.fullmatch(dict(evidence.cluster_settings or ()).get(FETCH_INTERVAL_KEY, ""))
    return 0.0 if match is None else int(match[1]) / 1000
