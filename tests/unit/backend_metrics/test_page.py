"""Tests of the page ``/metrics``."""

from __future__ import annotations

import asyncio
import threading

import httpx
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from starlette.responses import PlainTextResponse

from backend.metrics.page import MetricsPage
from backend.metrics.registry import register

pytestmark = pytest.mark.anyio


class _Site:
    """A page with one metric, which counts how often it was read, and a clock that the test sets."""

    def __init__(self, **more):
        self.read_count, self.now_s, self.threads = 0, 0.0, set()
        self.registry = CollectorRegistry(auto_describe=False)
        register(self._read, self.registry)
        self.page = MetricsPage(registry=self.registry, monotonic=lambda: self.now_s, **more)

    def _read(self):
        self.read_count += 1
        self.threads.add(threading.get_ident())
        return [GaugeMetricFamily("barrierscope_reads", "x", value=self.read_count)]

    async def get(self, path="/metrics", method="GET", **headers):
        transport = httpx.ASGITransport(app=self.page)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.request(method, path, headers=headers)


async def test_prometheus_gets_its_text_format_written_in_a_thread():
    site = _Site()
    answer = await site.get(accept="text/plain;version=0.0.4")

    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert answer.text.endswith("barrierscope_reads 1.0\n")
    assert threading.get_ident() not in site.threads


async def test_openmetrics_is_written_for_whoever_asks_for_it():
    answer = await _Site().get(accept="application/openmetrics-text;version=1.0.0")

    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


async def test_scrapers_that_come_together_get_one_text_and_later_ones_a_new_text():
    site = _Site()
    answers = await asyncio.gather(*(site.get() for _ in range(5)))
    assert {a.text for a in answers} == {answers[0].text}
    assert site.read_count == 1

    site.now_s = 1.1
    assert (await site.get()).text.endswith("barrierscope_reads 2.0\n")


async def test_the_values_are_brought_up_to_date_before_they_are_written():
    fresh = []

    async def refresh():
        fresh.append(True)

    site = _Site(refresh=refresh)
    await site.get()
    assert (len(fresh), site.read_count) == (1, 1)


async def test_another_method_is_refused_and_another_path_is_passed_on():
    refused = await _Site().get(method="POST")
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")
    assert (await _Site().get("/")).status_code == 404
    assert (await _Site(rest=PlainTextResponse("rest")).get("/x")).text == "rest"
