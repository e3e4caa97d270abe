"""The collector for targets of kind ``spark``: a listener in the query's driver pushes, and nothing polls.

The listener (``collectors.spark.listener``) posts to the API, whose service turns what it receives into observations.
"""

from __future__ import annotations

from typing import Final

from backend.domain import engines
from collectors.base import CollectorKind

SPARK: Final = CollectorKind(kind="spark", engines=(engines.SPARK,))
