"""Tests of the event loop of the roles that wait for many connections."""

from __future__ import annotations

import asyncio

import pytest
import uvloop

from backend.api import server
from backend.cli import alert_role, event_loop, roles
from backend.settings import load_settings
from tests.support.running_up import free_port

_NOWHERE = "postgresql://nobody@127.0.0.1:1/none"


def test_the_loop_is_uvloop():
    found = []

    async def main() -> None:
        found.append(asyncio.get_running_loop())

    event_loop.run(main())

    assert isinstance(found[0], uvloop.Loop)


@pytest.mark.parametrize("role", [roles.api, roles.collect, alert_role.alert], ids=["api", "collect", "alert"])
def test_the_role_runs_on_this_loop(role, monkeypatch):
    started = []

    def run(main):
        started.append(main)
        main.close()

    async def serve(*args, **options) -> None:
        pass

    monkeypatch.setattr(event_loop, "run", run)
    # What the loop would run is not built, and the logs of the other tests stay as they are.
    monkeypatch.setattr(roles, "_ready_to_log", load_settings)
    monkeypatch.setattr(alert_role, "log_to_stderr", lambda level: None)
    monkeypatch.setattr(roles, "load_role", lambda name: None)
    monkeypatch.setattr(roles, "serve", serve)
    monkeypatch.setattr(roles, "_beating", lambda settings, name, metrics_port, serving: serving)
    monkeypatch.setattr(server, "build", lambda *args, **options: None)

    if role is roles.api:
        role(free_port(), None, _NOWHERE)
    else:
        role(_NOWHERE, None)

    assert len(started) == 1
