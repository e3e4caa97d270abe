"""The channel that says the state of a run: an end counts, silence is not hidden, and a channel that is gone yields."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import permutations

from backend.analysis.queries.speaking import speaker
from backend.domain.channel import Channel, RunChannel

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def channel(kind, *, heard_ago_s=1.0, news_ago_s=5.0, **values):
    known = {"is_watched": True, "has_ended": False, "is_listed": True, "is_running": True} | values
    return RunChannel(
        target=kind.value,
        channel=kind,
        is_pushed=kind is Channel.LISTENER,
        news_at=NOW - timedelta(seconds=news_ago_s),
        heard_at=NOW - timedelta(seconds=heard_ago_s),
        **known,
    )


LISTENER, HISTORY, DRIVER = channel(Channel.LISTENER), channel(Channel.HISTORY_SERVER), channel(Channel.DRIVER)


def said_by(*channels, current="listener"):
    """The speaker, which does not depend on the order of the channels."""
    (found,) = {speaker(order, current, NOW) for order in permutations(channels)}
    return found


def test_of_several_that_run_the_listener_speaks_and_then_the_driver():
    assert said_by(LISTENER, HISTORY, DRIVER, current="history server") == "listener"
    assert said_by(HISTORY, DRIVER, current="history server") == "driver"


def test_the_end_that_one_channel_saw_counts():
    assert said_by(LISTENER, DRIVER, replace(HISTORY, has_ended=True, is_running=False)) == "history server"


def test_a_channel_that_no_longer_lists_the_run_has_seen_no_end():
    gone = replace(HISTORY, has_ended=True, is_listed=False, is_running=False)

    assert said_by(LISTENER, gone, current="history server") == "listener"
    assert said_by(replace(LISTENER, is_watched=False), gone) == "history server"


def test_a_channel_that_does_not_know_yields_to_one_that_does():
    assert said_by(replace(LISTENER, is_running=False), DRIVER) == "driver"


def test_a_silent_listener_speaks_unless_another_channel_has_newer_events():
    silent = channel(Channel.LISTENER, heard_ago_s=91, news_ago_s=95)

    assert said_by(silent, channel(Channel.HISTORY_SERVER, news_ago_s=96), current="history server") == "listener"
    assert said_by(silent, channel(Channel.HISTORY_SERVER, news_ago_s=94)) == "history server"


def test_a_driver_that_no_longer_answers_speaks_unless_another_channel_has_newer_events():
    gone = channel(Channel.DRIVER, heard_ago_s=360, news_ago_s=360)

    assert said_by(gone, channel(Channel.HISTORY_SERVER, news_ago_s=420), current="history server") == "driver"
    assert said_by(gone, channel(Channel.HISTORY_SERVER, news_ago_s=300), current="driver") == "history server"


def test_a_listener_that_was_heard_within_90_s_is_not_silent():
    assert said_by(channel(Channel.LISTENER, heard_ago_s=90, news_ago_s=95), HISTORY) == "listener"


def test_a_channel_that_is_removed_or_paused_does_not_speak_if_another_can():
    assert said_by(replace(LISTENER, is_watched=False), HISTORY) == "history server"
    assert said_by(replace(LISTENER, is_watched=False), current="listener") == "listener"


def test_if_nobody_was_heard_lately_the_one_that_spoke_last_stays():
    old = [channel(kind, heard_ago_s=400, news_ago_s=400) for kind in (Channel.DRIVER, Channel.HISTORY_SERVER)]

    assert said_by(*old, current="history server") == "history server"
    assert said_by(*old, current="gone") == "driver"
