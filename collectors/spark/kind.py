"""The collector for targets of kind ``spark``: a history server, a driver, and folders of event logs or a checkpoint.

A listener in a query's driver (``collectors.spark.listener``) pushes its events to the API instead. The target of such
a deployment is of this kind too, and no collector polls it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from backend.domain import engines
from backend.domain.connection import Reach
from collectors.base import Collector, CollectorKind, KnownRuns, TargetRow
from collectors.spark.opening import opened
from collectors.spark.probe import probe

_REQUEST_TIMEOUT_S = 10.0


@asynccontextmanager
async def open_target(target: TargetRow, known: KnownRuns, *, reach: Reach) -> AsyncIterator[Collector]:
    """Open a collector with its own connections to the target.

    Raises:
        InvalidInputError: the target's address is not an http(s) address, or that of a folder that the operator did not
            declare.
    """
    may_be_folder = target.origin.is_trusted
    async with opened(
        target.url, target.id, known, timeout_s=_REQUEST_TIMEOUT_S, reach=reach, may_be_folder=may_be_folder
    ) as collector:
        yield collector


SPARK: Final = CollectorKind(
    kind="spark",
    engines=(
        engines.SPARK,
        engines.SPARK_HISTORY,
        engines.SPARK_DRIVER,
        engines.SPARK_FOLDER,
        engines.SPARK_CHECKPOINT,
    ),
    open=open_target,
    probe=probe,
)
