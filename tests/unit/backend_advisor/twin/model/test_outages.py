"""What checkpoints say of an outage after a failure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from types import SimpleNamespace
from typing import Any

import pytest

from backend.advisor.advice import Interval
from backend.advisor.twin.model.outages import LOST_WORKER_MS, Outages, outages_of

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


UNREACHABLE = "JobMasterException: TaskManager with id host:1-2 is no longer reachable."
CLOSED = "RemoteTransportException: Connection unexpectedly closed by remote task manager"
NOT_DEPLOYED = "RecipientUnreachableException: Could not send message [TaskExecutorGateway.submitTask]"


def outage(
    triggers: list[float], failures: list[float], interval_ms: int | None = 10_000, texts: tuple[str, ...] = ()
) -> Interval | None:
    found = outages(triggers, failures, interval_ms, texts)
    return None if found is None else found.outage_ms


def outages(
    triggers: list[float], failures: list[float], interval_ms: int | None = 10_000, texts: tuple[str, ...] = ()
) -> Outages | None:
    recorded: Any = [
        SimpleNamespace(checkpoint=SimpleNamespace(header=SimpleNamespace(triggered_at=at(t)))) for t in triggers
    ]
    config: Any = SimpleNamespace(interval_ms=interval_ms)
    return outages_of(recorded, [(at(s), t) for s, t in zip_longest(failures, texts, fillvalue="boom")], config)


def test_the_outage_ends_within_an_interval_before_the_next_checkpoint():
    assert outage([0, 10, 34, 44], [12]) == Interval(17_000.0, 12_000.0, 22_000.0)


def test_of_several_failures_the_middle_counts_and_the_extremes_bound():
    found = outage([0, 10, 34, 44, 60, 70, 90], [12, 45, 71])

    assert found == Interval(14_000.0, 5_000.0, 22_000.0)


def test_only_the_last_of_failures_without_a_checkpoint_between_them_counts():
    assert outage([0, 60], [10, 20, 42]) == outage([0, 60], [42])


@pytest.mark.parametrize(
    ("triggers", "failures", "interval_ms"),
    [
        ([0, 10], [], 10_000),
        ([0, 10], [11], 10_000),
        ([5, 10], [4], 10_000),
        ([0, 10], [5], 600_000),
        ([], [5], 10_000),
    ],
    ids=["no failure", "no checkpoint after it", "before the first", "a long interval", "no checkpoint"],
)
def test_what_cannot_be_told(triggers: list[float], failures: list[float], interval_ms: int):
    assert outage(triggers, failures, interval_ms) is None


def test_an_unknown_interval_tells_nothing():
    assert outage([0, 10], [5], None) is None


def test_a_dead_worker_was_gone_for_some_heartbeats_before_it_was_noticed():
    plain, lost = outages([0, 10, 34, 44], [12]), outages([0, 10, 34, 44], [12], texts=(UNREACHABLE,))

    assert plain is not None
    assert lost is not None
    assert lost.outage_ms.value == plain.outage_ms.value + LOST_WORKER_MS.value
    assert (plain.is_worker_lost, lost.is_worker_lost) == (False, True)


def test_deployments_to_a_dead_worker_belong_to_the_outage_that_its_broken_connection_began():
    texts = (CLOSED, NOT_DEPLOYED, NOT_DEPLOYED)
    found = outages([0, 10, 40], [12, 14, 20], texts=texts)

    assert found is not None
    assert found.outage_ms == outage([0, 10, 40], [12])
    assert found.is_worker_lost
