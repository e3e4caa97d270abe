"""The collector for targets of kind ``spark``, which are not polled: a listener in the query's driver pushes data.

The listener (``collectors.spark.listener``) posts events to the API, which turns them into observations.
"""

from __future__ import annotations

from typing import Final

from backend.domain import engines
from collectors.base import CollectorKind

SPARK: Final = CollectorKind(kind="spark", engines=(engines.SPARK,))
