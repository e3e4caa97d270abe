"""The API over a store in this process, complete except for the socket, with a clock that the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
from fastapi import FastAPI
from sqlalchemy.ext.asyncio import AsyncEngine

from backend.api.app import AppDeps, create_app
from backend.api.server import AlertingOptions, build_services
from backend.domain.clock import Clock
from backend.domain.engines import FLINK, EngineCapabilities
from backend.domain.errors import TargetUnavailableError
from backend.services.advice.cards import ChangeSettings
from backend.services.targets.targets import Probe, ProbeAnswer, TargetRules


@dataclass(frozen=True)
class Probed:
    """The answer of these tests' probe."""

    engine: EngineCapabilities = FLINK
    version: str | None = "1.20.1"
    running_jobs: tuple[str, ...] = ("orders",)


async def probe(url: str, timeout_s: float, *, kind: str) -> ProbeAnswer:
    """Every target answers, except those named ``dead``."""
    if "dead" in url:
        raise TargetUnavailableError(url=url, reason="cannot connect: Connection refused")
    return Probed()


async def change_nothing(
    url: str, run: str, settings: Mapping[str, str], timeout_s: float, token: str | None, *, kind: str
) -> None:
    """Reject a change of settings: no target answers."""
    raise TargetUnavailableError(url=url, reason="cannot connect: Connection refused")


def api_over(
    engine: AsyncEngine,
    clock: Clock,
    *,
    rules: TargetRules | None = None,
    target_probe: Probe = probe,
    change_settings: ChangeSettings = change_nothing,
    token: str | None = None,
    alerting: AlertingOptions | None = None,
) -> FastAPI:
    """The API application."""
    rules = rules or TargetRules(is_everything_allowed=True)
    services = build_services(
        engine, clock, rules, target_probe, "0.1.0", alerting, change_settings=change_settings, token=token
    )
    return create_app(AppDeps(services, "0.1.0"))


@asynccontextmanager
async def asking(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """A client of ``app``."""
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8050") as client:
        yield client
