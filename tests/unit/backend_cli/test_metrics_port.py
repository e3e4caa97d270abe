"""Tests of the port on which a role serves its metrics."""

from __future__ import annotations

import socket

import httpx
import pytest

from backend.cli.metrics_port import serving_metrics
from backend.domain.errors import HostError
from backend.settings import Settings
from tests.support.running_up import free_port
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.anyio


async def _get(port, path="/metrics", **headers):
    async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as client:
        return await client.get(f"http://127.0.0.1:{port}{path}", headers=headers)


async def test_a_role_serves_its_metrics_while_it_works_and_frees_the_port_at_its_end():
    port = free_port()
    async with serving_metrics("lab", Settings(), port):
        answer = await _get(port)
        assert answer.status_code == 200
        assert "process_resident_memory_bytes" in answer.text
    with pytest.raises(httpx.ConnectError):
        await _get(port)


async def test_without_a_port_nothing_is_served_and_an_option_overrides_the_setting():
    other, port = free_port(), free_port()
    async with serving_metrics("lab", Settings()), serving_metrics("lab", Settings(metrics_port=other), port):
        assert (await _get(port)).status_code == 200
        with pytest.raises(httpx.ConnectError):
            await _get(other)


async def test_the_error_of_the_role_is_raised_as_it_is():
    with pytest.raises(KeyError, match="role"):
        async with serving_metrics("lab", Settings(), free_port()):
            raise KeyError("role")


async def test_a_port_in_use_is_refused_in_a_sentence_with_the_option():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(HostError, match=r"in use; pass another one with --metrics-port"):
            async with serving_metrics("lab", Settings(), taken.getsockname()[1]):
                pass


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}], ids=str)
async def test_on_loopback_a_page_of_another_site_reads_nothing(headers):
    port = free_port()
    async with serving_metrics("lab", Settings(), port):
        assert (await _get(port, **headers)).status_code == 403


async def test_beyond_loopback_prometheus_may_use_any_name_of_the_host():
    port = free_port()
    async with serving_metrics("lab", Settings(metrics_host="0.0.0.0"), port):
        assert (await _get(port, Host="pod.example")).status_code == 200
