"""Tests of one section: only a list that was read wholly changes its targets, and problems are told in the store."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from backend.domain.cluster_history import Happening, News
from backend.domain.declared_target import DeclaredTarget
from backend.domain.discovery import Found
from backend.domain.errors import StoreUnavailableError
from backend.domain.target import TargetOrigin
from collectors.discovery.section import SectionKeeper
from tests.support.observations import NOW as START
from tests.support.observations import SteppingClock

pytestmark = pytest.mark.anyio

A, B = DeclaredTarget("http://a", "a"), DeclaredTarget("http://b", "b")


@dataclass
class Refused:
    url: str
    reason: str


class Store:
    """Remembers what a section brought."""

    def __init__(self):
        self.sets = []
        self.problems = []
        self.seen = 0
        self.gaps = []
        self.refused = []
        self.is_away = False
        self.is_other_list = False

    async def differs(self, source, urls):
        return self.is_other_list

    async def apply(self, declared, *, place, at):
        if self.is_away:
            raise StoreUnavailableError("away")
        self.sets.append((declared.source, declared.origin, [t.url for t in declared.targets]))
        return tuple(self.refused)

    async def note_seen(self, source, *, place, at):
        self.seen += 1

    async def note_problem(self, source, *, place, problem, at):
        self.problems.append(problem)

    async def note_gaps(self, source, *, read_at, left_out, history):
        self.gaps.append((read_at, left_out, history))

    async def end_missing(self, source, *, grace_s, at):
        return []


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def clock():
    return SteppingClock()


@pytest.fixture
def keeper(store, clock):
    return SectionKeeper("production/consul", "http://sd", store, clock=clock, pause=None)


async def test_a_list_is_stored_once_and_again_when_it_changes(store, keeper):
    for found in (Found((A,)), Found((A,)), Found((A, B))):
        keeper.found(found)
        await keeper.look()

    assert [urls for *_, urls in store.sets] == [["http://a"], ["http://a", "http://b"]]
    assert {(source, origin) for source, origin, _ in store.sets} == {("production/consul", TargetOrigin.DISCOVERY)}
    assert (keeper.state.target_count, keeper.state.problem, store.problems) == (2, None, [])


async def test_a_failure_before_and_after_a_list_changes_no_target(store, clock, keeper):
    keeper.failed("http://sd: HTTP 500")
    await keeper.look()
    assert (store.sets, store.problems) == ([], ["http://sd: HTTP 500"])
    keeper.found(Found((A,)))
    await keeper.look()
    assert keeper.state.problem is None
    assert store.seen == 1

    keeper.failed("http://sd: HTTP 502")
    clock.at += timedelta(seconds=10)
    await keeper.look()
    assert len(store.sets) == 1
    assert store.problems[-1] == "http://sd: HTTP 502"
    assert keeper.state.failure_count == 2


async def test_a_problem_that_lasts_is_logged_and_counted_once_until_it_has_ended(keeper):
    with capture_logs() as logs:
        for found in (Found((A,)), Found((A, B)), Found((A,))):
            keeper.found(found)
            keeper.failed("HTTP 403")
            await keeper.look()
        assert keeper.state.failure_count == 1
        keeper.found(Found((A,)))
        await keeper.look()
        keeper.failed("HTTP 403")

    assert keeper.state.failure_count == 2
    assert len([entry for entry in logs if entry["log_level"] == "warning"]) == 2


async def test_what_is_left_out_is_told_with_at_most_five_sentences_and_is_no_problem(store, keeper):
    keeper.found(Found((A,), tuple(f"'h{n}' is left out" for n in range(8))))
    await keeper.look()

    assert [urls for *_, urls in store.sets] == [["http://a"]]
    assert (store.problems, keeper.state.problem) == ([], None)
    ((_, left_out, history),) = store.gaps
    assert left_out.count("is left out") == 5
    assert left_out.endswith("3 more are left out")
    assert history is None
    assert keeper.state.left_out_count == 8


async def test_a_target_of_another_owner_is_tried_again_after_a_while(store, clock, keeper):
    store.refused = [Refused("http://a", "is already watched")]
    keeper.found(Found((A,)))
    await keeper.look()
    assert (store.problems, store.gaps) == ([], [(START, "http://a is already watched", None)])
    store.refused = []
    clock.at += timedelta(seconds=29)
    await keeper.look()
    assert len(store.sets) == 1
    clock.at += timedelta(seconds=1)
    await keeper.look()

    assert len(store.sets) == 2
    assert (keeper.state.problem, keeper.state.target_count) == (None, 1)


async def test_a_history_that_is_not_read_hides_nothing_of_the_targets(store, clock, keeper):
    store.refused = [Refused("http://a", "is already watched")]
    with capture_logs() as logs:
        for _ in range(4):
            keeper.found(Found((A,)))
            keeper.lacks("pods: HTTP 403")
            await keeper.look()
            clock.at += timedelta(seconds=10)
    assert (keeper.state.problem, keeper.state.failure_count, store.problems) == (None, 0, [])
    assert [history for *_, history in store.gaps] == ["pods: HTTP 403"] * len(store.gaps)
    assert len([entry for entry in logs if entry.get("reason") == "pods: HTTP 403"]) == 1
    # A target that another source had is still tried again, and the time of the last reading goes on.
    assert len(store.sets) == 2
    assert store.gaps[-1][0] == clock.at - timedelta(seconds=10)

    keeper.lacks(None)
    await keeper.look()
    assert store.gaps[-1][2] is None


async def test_an_old_list_never_replaces_that_of_another_collector(store, clock, keeper):
    store.refused, store.is_other_list = [Refused("http://a", "is already watched")], True
    keeper.found(Found((A,)))
    await keeper.look()
    keeper.failed("HTTP 500")
    clock.at += timedelta(seconds=60)
    await keeper.look()

    assert len(store.sets) == 1


async def test_a_list_is_stored_again_if_another_collector_stored_an_older_one(store, clock, keeper):
    keeper.found(Found((A,)))
    await keeper.look()
    clock.at += timedelta(seconds=30)
    await keeper.look()
    assert len(store.sets) == 1
    store.is_other_list = True
    clock.at += timedelta(seconds=30)
    for _ in range(2):
        await keeper.look()

    assert len(store.sets) == 2


async def test_a_store_that_was_away_gets_the_list_later(store, keeper):
    store.is_away = True
    keeper.found(Found((A,)))
    with pytest.raises(StoreUnavailableError):
        await keeper.look()
    store.is_away = False
    await keeper.look()

    assert len(store.sets) == 1


# --- the history of jobs ------------------------------------------------------------------------------------------


class History:
    """Remembers the news it got. ``unknown`` are the deployments that have no job yet."""

    def __init__(self):
        self.noted = []
        self.unknown = set()
        self.calls = 0
        self.is_away = False
        self.refused = None

    async def note(self, news, *, at):
        self.calls += 1
        if self.is_away:
            raise StoreUnavailableError("away")
        if self.refused in [n.what.text for n in news]:
            raise OverflowError("date value out of range")
        self.noted += [n.what.text for n in news if n.deployment not in self.unknown]
        return [n for n in news if n.deployment in self.unknown]


@pytest.fixture
def history():
    return History()


@pytest.fixture
def telling(store, clock, history):
    return SectionKeeper("production/eu", "p", store, clock=clock, pause=None, history=history)


def of(deployment, *texts):
    return [News(deployment, Happening(words, START, words, "upgrade")) for words in texts]


async def test_news_are_stored_once_and_in_their_order(telling, history):
    telling.happened(of("a", "1", "2"))
    telling.happened(of("b", "3"))
    for _ in range(3):
        await telling.look()

    assert (history.noted, history.calls) == (["1", "2", "3"], 1)


async def test_no_news_are_lost_while_the_store_is_away(telling, history):
    history.is_away = True
    telling.happened(of("a", "1"))
    with pytest.raises(StoreUnavailableError):
        await telling.look()
    telling.happened(of("a", "2"))
    history.is_away = False
    await telling.look()

    assert history.noted == ["1", "2"]


async def test_news_without_a_job_are_tried_again_for_some_minutes_and_hold_up_no_others(telling, history, clock):
    history.unknown = {"a"}
    telling.happened(of("a", "1"))
    await telling.look()
    telling.happened(of("b", "2"))
    await telling.look()
    assert history.noted == ["2"]

    calls = history.calls
    await telling.look()
    assert history.calls == calls
    clock.at += timedelta(seconds=60)
    history.unknown = set()
    await telling.look()
    assert history.noted == ["2", "1"]

    history.unknown = {"a"}
    telling.happened(of("a", "3"))
    for _ in range(4):
        clock.at += timedelta(seconds=300)
        await telling.look()
    history.unknown = set()
    clock.at += timedelta(seconds=300)
    await telling.look()
    assert history.noted == ["2", "1"]


async def test_news_that_cannot_be_stored_are_dropped_and_neither_end_the_section_nor_hold_up_others(telling, history):
    history.refused = "3"
    telling.happened(of("a", "1", "2", "3", "4", "5"))
    with capture_logs() as logs:
        for _ in range(2):
            await telling.look()

    assert history.noted == ["1", "2", "4", "5"]
    (warning,) = [entry for entry in logs if entry["log_level"] == "warning"]
    assert (warning["deployment"], warning["reason"]) == ("a", "OverflowError")
