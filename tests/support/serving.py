"""Run the API in this process over a store, with a clock that the test moves. Only the socket is missing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import dataclass
from functools import cache
from typing import cast

import httpx
from fastapi import FastAPI
from sqlalchemy.ext.asyncio import AsyncEngine
from starlette.datastructures import State

from backend.advisor.twin.tiers.tiers import QuickTiers
from backend.api.app import AppDeps, create_app
from backend.api.deps import Services
from backend.api.server import AlertingOptions, build_services
from backend.domain.address_rules import EVERYWHERE, AddressRules
from backend.domain.clock import Clock
from backend.domain.connection import NOTHING, CredentialPolicy, Reach
from backend.domain.engines import FLINK, EngineCapabilities
from backend.domain.errors import TargetUnavailableError
from backend.services.targets.changing import ChangeSettings
from backend.services.targets.inspecting import Inspect
from backend.services.targets.targets import Probe, ProbeAnswer


@dataclass(frozen=True)
class Probed:
    """What the probe of these tests reports about a target."""

    engine: EngineCapabilities = FLINK
    version: str | None = "1.20.1"
    running_jobs: tuple[str, ...] = ("orders",)
    summary: str | None = None


async def probe(url: str, timeout_s: float, *, kind: str, reach: Reach) -> ProbeAnswer:
    """Report a Flink for every URL, except that a URL with ``dead`` in it cannot be reached."""
    if "dead" in url:
        raise TargetUnavailableError(url=url, reason="cannot connect: Connection refused")
    return Probed()


async def change_nothing(
    url: str,
    run: str,
    settings: Mapping[str, str],
    timeout_s: float,
    token: str | None,
    *,
    kind: str,
    reach: Reach,
) -> None:
    """Reject every change of settings, because no target can be reached."""
    raise TargetUnavailableError(url=url, reason="cannot connect: Connection refused")


def api_over(
    engine: AsyncEngine,
    clock: Clock,
    *,
    rules: AddressRules = EVERYWHERE,
    policy: CredentialPolicy = NOTHING,
    environment: Mapping[str, str] | None = None,
    target_probe: Probe = probe,
    change_settings: ChangeSettings = change_nothing,
    inspect: Inspect | None = None,
    token: str | None = None,
    alerting: AlertingOptions | None = None,
    quick: QuickTiers | None = None,
) -> FastAPI:
    """Build the API application over a store. Its routes are those of all other applications of this process."""
    services = build_services(
        engine,
        clock,
        Reach(rules, policy=policy, environment=environment or {}),
        target_probe,
        "0.1.0",
        alerting,
        change_settings=change_settings,
        inspect=inspect,
        token=token,
        quick=quick,
    )
    app = copy(_application())
    app.state = State({"services": services})
    return app


@cache
def _application() -> FastAPI:
    """Build an application without services. FastAPI takes a tenth of a second for the routes of each application."""
    return create_app(AppDeps(cast(Services, None), "0.1.0"))


@asynccontextmanager
async def asking(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """Yield an HTTP client of ``app``."""
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8050") as client:
        yield client
