"""Tests that every collector must pass, by the contract of ``collectors.base``.

To test a collector, derive a class from ``CollectorContract`` and set its ``kind`` and ``source``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import ClassVar

import pytest

from backend.domain.address_rules import AddressRules
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.clock import from_epoch_ms
from backend.domain.connection import ANYWHERE, Reach
from backend.domain.engines import EngineCapabilities
from backend.domain.errors import TargetProtocolError, TargetUnavailableError
from backend.domain.ids import EngineRunId
from backend.domain.observation import JobObservation, JobState, KnownRun, Observation
from collectors.base import Collector, CollectorKind, KnownRuns
from tests.support.collector_targets import Fault, Row, Served, Source, serving

Handed = tuple[EngineRunId, int, datetime, bool | None]


def check_observation(observation: Observation, kind: CollectorKind) -> None:
    """Check that identities are complete and unique, instants have a time zone, and the engine supports all values."""
    engine = observation.engine
    assert engine.kind in {e.kind for e in kind.engines}
    assert engine.name
    assert engine.source
    assert observation.observed_at.tzinfo is not None
    runs = [(j.engine_run_id, j.started_at) for j in observation.jobs]
    assert len(runs) == len(set(runs))
    for job in observation.jobs:
        assert job.engine_run_id
        assert job.name
        assert job.engine_state
        assert job.started_at.tzinfo is not None
        _check_checkpoints(job)
        _check_capabilities(job, engine)


def _check_checkpoints(job: JobObservation) -> None:
    headers = [c.header for c in job.checkpoints]
    assert len({(h.checkpoint_id, h.triggered_at) for h in headers}) == len(headers)
    for header in headers:
        assert header.checkpoint_id >= 0
        assert header.triggered_at.tzinfo is not None
        if header.status is CheckpointStatus.COMPLETED:
            assert header.end_to_end_duration_ms is not None
        if header.status is CheckpointStatus.FAILED:
            assert header.failed_at is not None


def _check_capabilities(job: JobObservation, engine: EngineCapabilities) -> None:
    for checkpoint in job.checkpoints:
        assert checkpoint.batch is None or engine.is_micro_batched
        assert not checkpoint.details or engine.has_subtasks
        assert checkpoint.header.is_unaligned is None or engine.has_barriers
    assert not any(events for _, events in job.barriers) or engine.has_channel_events
    if job.config is not None and job.config.is_unaligned_enabled:
        assert engine.has_unaligned_checkpoints


def terminal(observation: Observation) -> list[Handed]:
    """Return the terminal checkpoints (completed or failed) of an observation.

    The last field of each entry states whether the checkpoint is discarded, because a collector reports a checkpoint
    a second time when it has been discarded.
    """
    return [
        (job.engine_run_id, c.header.checkpoint_id, c.header.triggered_at, c.header.is_discarded)
        for job in observation.jobs
        for c in job.checkpoints
        if c.header.status.is_terminal
    ]


class CollectorContract:
    """Tests of a collector that polls its target."""

    kind: ClassVar[CollectorKind]
    source: ClassVar[Callable[[], Source]]
    ends_missing_at_once: ClassVar[bool] = True
    """Whether a known run has ended as soon as the engine does not list it. Otherwise, it is unknown for a time."""

    @pytest.fixture
    async def served(self) -> Iterable[Served]:
        async with serving(type(self).source()) as found:
            yield found

    def open(self, served: Served, known: KnownRuns | None = None) -> AbstractAsyncContextManager[Collector]:
        assert self.kind.open is not None
        return self.kind.open(Row(self.kind.kind, served.url), known or {}, reach=ANYWHERE)

    async def fresh(self, served: Served) -> list[Handed]:
        """Return the terminal checkpoints that a new collector reports in its first poll."""
        async with self.open(served) as collector:
            return terminal(await collector.collect(served.source.now))

    async def test_observations_are_valid_and_have_only_what_the_engine_has(self, served: Served) -> None:
        async with self.open(served) as collector:
            for _ in range(3):
                observation = await collector.collect(served.source.now)
                assert observation.target_id == Row(self.kind.kind, served.url).id
                assert observation.cost.request_count > 0
                check_observation(observation, self.kind)
                served.source.advance()

    async def test_observations_have_all_that_the_engine_has(self, served: Served) -> None:
        seen: list[JobObservation] = []
        async with self.open(served) as collector:
            for _ in range(4):
                observation = await collector.collect(served.source.now)
                seen += observation.jobs
                served.source.advance()
        engine = observation.engine
        assert any(c.details for j in seen for c in j.checkpoints) is engine.has_subtasks
        assert any(events for j in seen for _, events in j.barriers) is engine.has_channel_events
        assert any(c.batch is not None for j in seen for c in j.checkpoints) is engine.is_micro_batched

    async def test_a_second_poll_hands_on_nothing_twice(self, served: Served) -> None:
        async with self.open(served) as collector:
            first = terminal(await collector.collect(served.source.now))
            assert first
            assert terminal(await collector.collect(served.source.now)) == []
            served.source.advance()
            second = terminal(await collector.collect(served.source.now))
        assert second
        assert not set(first) & set(second)
        assert {*first, *second} >= set(await self.fresh(served))

    @pytest.mark.parametrize("fault", list(Fault))
    async def test_a_failed_poll_raises_and_the_next_poll_misses_nothing(
        self, served: Served, fault: Fault, timeout_s: float
    ) -> None:
        expected = TargetUnavailableError if fault in (Fault.AWAY, Fault.SLOW) else TargetProtocolError
        async with self.open(served) as collector:
            first = terminal(await collector.collect(served.source.now))
            served.source.advance()
            served.fault = fault
            with pytest.raises(expected) as raised:
                await collector.collect(served.source.now)
            assert str(raised.value)
            served.fault = None
            second = terminal(await collector.collect(served.source.now))
        assert not set(first) & set(second)
        assert {*first, *second} >= set(await self.fresh(served))

    async def test_forget_reads_everything_again(self, served: Served) -> None:
        async with self.open(served) as collector:
            first = terminal(await collector.collect(served.source.now))
            collector.forget()
            again = terminal(await collector.collect(served.source.now))
        assert sorted(again, key=str) == sorted(first, key=str)

    async def test_a_known_run_that_is_gone_has_ended_or_is_unknown_but_never_runs(self, served: Served) -> None:
        gone = (EngineRunId("0" * 32), from_epoch_ms(1_700_000_000_000))
        async with self.open(served, {gone: KnownRun("of before")}) as collector:
            first = await collector.collect(served.source.now)
            second = await collector.collect(served.source.now + timedelta(seconds=1))
        states = [
            [(j.name, j.state) for j in observed.jobs if (j.engine_run_id, j.started_at) == gone]
            for observed in (first, second)
        ]
        if self.ends_missing_at_once:
            assert states == [[("of before", JobState.ENDED)], []]
        else:
            assert states == [[("of before", JobState.UNKNOWN)]] * 2

    async def test_the_probe_finds_the_same_engine_and_jobs_as_the_collector(self, served: Served) -> None:
        assert self.kind.probe is not None
        probed = await self.kind.probe(served.url, 5.0, reach=ANYWHERE)
        async with self.open(served) as collector:
            observation = await collector.collect(served.source.now)
        assert (probed.engine, probed.version) == (observation.engine, observation.engine_version)
        running = {j.name for j in observation.jobs if j.state is not JobState.ENDED}
        assert set(probed.running_jobs) == running

    @pytest.mark.parametrize("fault", list(Fault))
    async def test_the_probe_fails_with_the_same_error_as_a_poll(
        self, served: Served, fault: Fault, timeout_s: float
    ) -> None:
        assert self.kind.probe is not None
        served.fault = fault
        expected = TargetUnavailableError if fault in (Fault.AWAY, Fault.SLOW) else TargetProtocolError
        with pytest.raises(expected):
            await self.kind.probe(served.url, timeout_s, reach=ANYWHERE)

    async def test_no_address_that_the_rules_refuse_is_connected_to(self, served: Served) -> None:
        assert self.kind.open is not None
        assert self.kind.probe is not None
        # The name is on the allow-list, but it resolves to a loopback address, which is not on the allow-list.
        url = served.url.replace("127.0.0.1", "localhost")
        rules = AddressRules(is_everything_allowed=False, allowed=("localhost", "0.0.0.0/0"))
        allowed = AddressRules(is_everything_allowed=False, allowed=("localhost", "127.0.0.1"))
        with pytest.raises(TargetUnavailableError, match="not allowed here"):
            await self.kind.probe(url, 5.0, reach=Reach(rules))
        async with self.kind.open(Row(self.kind.kind, url), {}, reach=Reach(rules)) as collector:
            with pytest.raises(TargetUnavailableError, match="not allowed here"):
                await collector.collect(served.source.now)
        assert await self.kind.probe(url, 5.0, reach=Reach(allowed))
