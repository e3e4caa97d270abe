"""Defines the collector for kind ``flink``: Flink's JobManager, and the live runtime, which has the same REST API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from backend.domain import engines
from backend.domain.connection import Reach
from collectors.base import Collector, CollectorKind, KnownRuns, TargetRow
from collectors.flink.client import open_transport
from collectors.flink.collector import FlinkCollector
from collectors.flink.inspecting import inspect
from collectors.flink.probe import probe
from collectors.flink.settings import change_settings

_REQUEST_TIMEOUT_S = 10.0


@asynccontextmanager
async def open_target(target: TargetRow, known: KnownRuns, *, reach: Reach) -> AsyncIterator[Collector]:
    """Open a collector with its own connections to the target.

    Raises:
        InvalidInputError: the target's address is not an http(s) address.
    """
    async with open_transport(target.url, timeout_s=_REQUEST_TIMEOUT_S, reach=reach) as transport:
        yield FlinkCollector(transport, target_id=target.id, known=known)


FLINK: Final = CollectorKind(
    kind="flink",
    engines=(engines.FLINK, engines.RUNTIME),
    open=open_target,
    probe=probe,
    change_settings=change_settings,
    inspect=inspect,
)
