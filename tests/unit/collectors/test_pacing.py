"""Tests of the limits that protect a JobManager: requests in flight, and requests that begin within a second."""

from __future__ import annotations

import asyncio

import pytest

from collectors.pacing import IN_FLIGHT_MAX, PER_SECOND_MAX, PacedTransport

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Target:
    """A target in virtual time, which passes only while the reader sleeps and during a request."""

    url = "http://flink"

    def __init__(self, *, answers_in_s: float) -> None:
        self.now_s = 100.0
        self.began_s: list[float] = []
        self.in_flight = 0
        self.in_flight_max = 0
        self._answers_in_s = answers_in_s

    def monotonic_s(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        await asyncio.sleep(0)

    async def get(self, path: str) -> bytes:
        self.began_s.append(self.now_s)
        self.in_flight += 1
        self.in_flight_max = max(self.in_flight_max, self.in_flight)
        await self.sleep(self._answers_in_s)
        self.in_flight -= 1
        return path.encode()


@pytest.mark.parametrize("answers_in_s", [0.0, 0.01, 0.2])
async def test_requests_keep_to_both_limits(answers_in_s: float) -> None:
    target = Target(answers_in_s=answers_in_s)
    paced = PacedTransport(target, monotonic_s=target.monotonic_s, sleep=target.sleep)

    found = await asyncio.gather(*(paced.get(f"/{n}") for n in range(150)))

    assert found == [f"/{n}".encode() for n in range(150)]
    assert paced.url == target.url
    assert target.in_flight_max <= IN_FLIGHT_MAX
    for first, later in zip(target.began_s, target.began_s[PER_SECOND_MAX:], strict=False):
        assert later - first >= 1.0 - 1e-9


async def test_a_few_requests_do_not_wait() -> None:
    target = Target(answers_in_s=0.0)
    paced = PacedTransport(target, monotonic_s=target.monotonic_s, sleep=target.sleep)

    for n in range(PER_SECOND_MAX):
        await paced.get(f"/{n}")

    assert target.now_s == 100.0


async def test_a_failed_request_frees_its_slot() -> None:
    target = Target(answers_in_s=0.0)
    paced = PacedTransport(target, monotonic_s=target.monotonic_s, sleep=target.sleep)

    async def fail(path: str) -> bytes:
        raise ValueError(path)

    target.get = fail  # type: ignore[method-assign]
    for n in range(IN_FLIGHT_MAX + 1):
        with pytest.raises(ValueError, match=f"/{n}"):
            await paced.get(f"/{n}")
