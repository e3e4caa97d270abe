"""The role ``lab``, which runs the simulations that the Lab page and scripts request. This module only composes parts.

It is a role of its own, because a simulation uses a whole core: in the process of the API it would delay requests.
"""

from __future__ import annotations

import asyncio
import os
import socket
from functools import partial

from backend.cli.database import DatabaseUrl, plain_url
from backend.cli.garbage import collect_garbage_less_often
from backend.cli.heartbeat import beating
from backend.cli.listening import stop_event
from backend.cli.metrics_port import MetricsPort, serving_metrics
from backend.cli.role_logging import log_to_stderr
from backend.settings import Settings, load_settings


def lab(database_url: DatabaseUrl = None, metrics_port: MetricsPort = None) -> None:
    """Run the simulations and backtests that pages and the API request, one at a time. Several processes share them."""
    settings = load_settings()
    log_to_stderr(settings.log_level)
    asyncio.run(_until_stopped(plain_url(database_url, settings), settings, metrics_port))


async def _until_stopped(url: str, settings: Settings, metrics_port: int | None) -> None:
    from backend.contracts.simulations import EXAMPLE, SimulationIn
    from backend.services.backtests import replaying
    from backend.services.simulations import cap_curves
    from backend.services.simulations.worker import SimulationWorker
    from backend.services.whatif import confirming, preparing
    from backend.store.postgres.connections import create_store_engine
    from backend.store.wall_clock import WallClock

    engine = create_store_engine(url, pool_size=1, pool_overflow=1)
    try:
        backtest = partial(replaying.run, url, choose_for=preparing.choose_compiled)
        worker = SimulationWorker(
            engine,
            WallClock(),
            name=f"{socket.gethostname()}:{os.getpid()}",
            others={confirming.KIND: confirming.run, replaying.KIND: backtest, cap_curves.KIND: cap_curves.run},
            example=SimulationIn.model_validate(EXAMPLE),
        )
        collect_garbage_less_often()
        with stop_event() as stop:
            async with beating(settings.heartbeat_file), serving_metrics("lab", settings, metrics_port):
                await worker.run(stop)
    finally:
        await engine.dispose()
