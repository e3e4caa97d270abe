"""Goal: for any readings, no alert pages twice for one episode, gets lost, or resolves because data is missing.

Method: each seed chooses the times of a rule, a sequence of readings with gaps, and restarts. A restart loses
all state that is not stored. The test checks every step, and then the whole sequence. To replay one run:
pytest tests/simulation/test_alert_lifecycle.py -k "seed-17"
"""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta

from backend.alerting.labels import fingerprint
from backend.alerting.lifecycle import AlertState, Identity, LinkedCheckpoint, Reading, ReadingKind, Timing, step
from backend.domain.ids import RunId
from tests.support.observations import NOW
from tests.support.seeds import over_seeds

LABELS = {"alertname": "CheckpointExpired", "job": "orders"}
IDENTITY = Identity("CheckpointExpired", "warning", fingerprint(LABELS), LABELS)
KINDS = (ReadingKind.ACTIVE, ReadingKind.CLEAR, ReadingKind.UNKNOWN, ReadingKind.GONE)


def _readings(rnd):
    """Yield random readings, each with the pause before it in seconds.

    As in practice, several readings of one kind follow each other, and *gone* is rare.
    """
    kind = ReadingKind.CLEAR
    for number in range(rnd.randrange(5, 80)):
        if rnd.random() < 0.4:
            kind = rnd.choices(KINDS, weights=(5, 4, 3, 1))[0]
        linked = (LinkedCheckpoint(RunId("r1"), number),) if kind is ReadingKind.ACTIVE else ()
        yield Reading(kind, f"{kind} {number}", checkpoints=linked), rnd.choice((1, 5, 5, 5, 30, 600))


@over_seeds(50, more=240)
def test_every_sequence_of_readings_obeys_the_alert_rules(seed):
    rnd = random.Random(seed)
    timing = Timing(rnd.choice((0, 0, 7, 60)), rnd.choice((0, 0, 10, 90)))
    now, alert, pages, seen = NOW, None, [], set()
    active_since = clear_since = None

    for reading, pause_s in _readings(rnd):
        now += timedelta(seconds=pause_s)
        before = alert
        after, events = step(alert, IDENTITY, reading, timing, now)
        where = f"seed={seed} at {now}: {before and before.state} on {reading.kind} -> {after and after.state}"

        if reading.kind is ReadingKind.UNKNOWN:
            assert not events, f"missing data changed the alert: {where}"
            clear_since = None
        if reading.kind is ReadingKind.ACTIVE:
            active_since, clear_since = active_since or now, None
        if reading.kind in (ReadingKind.CLEAR, ReadingKind.GONE):
            clear_since = clear_since or now

        for event in events:
            assert event.at == now, where
            if event.after is AlertState.FIRING:
                assert reading.kind is ReadingKind.ACTIVE, where
                assert now - active_since >= timedelta(seconds=timing.for_s), f"too early: {where}"
                pages.append((after.id, "firing"))
            if event.after is AlertState.RESOLVED:
                waited = now - clear_since
                is_gone = reading.kind is ReadingKind.GONE
                assert is_gone or waited >= timedelta(seconds=timing.keep_firing_for_s), f"too early: {where}"
                pages.append((after.id, "resolved"))
        if after is not None and before is not None:
            assert (after.id, after.began_at) == (before.id, before.began_at), where
        if after is not None and not after.state.is_open:
            assert after.ended_at == now, where
            assert after.ended_reason, where
            seen.add(after.id)
            after, active_since = None, None
        if after is None and reading.kind is not ReadingKind.ACTIVE:
            active_since = None
        assert after is None or after.id not in seen, f"an ended episode came back: {where}"
        # After a restart, the alert has only the fields that the store keeps.
        alert = after if after is None or rnd.random() < 0.7 else replace(after)

    assert len(pages) == len(set(pages)), f"paged twice for one episode: seed={seed} {pages}"
    order = {}
    for episode, what in pages:
        order.setdefault(episode, []).append(what)
    assert all(w in (["firing"], ["firing", "resolved"]) for w in order.values()), f"seed={seed} {order}"


@over_seeds(10, more=40)
def test_a_lasting_condition_fires_and_resolves_when_it_is_over(seed):
    rnd = random.Random(seed)
    timing = Timing(rnd.choice((0, 7, 60)), rnd.choice((0, 10, 90)))
    now, alert, states = NOW, None, []
    for kind in [ReadingKind.ACTIVE] * 40 + [ReadingKind.CLEAR] * 40:
        now += timedelta(seconds=rnd.choice((2, 5, 9)))
        alert, events = step(alert, IDENTITY, Reading(kind, "r"), timing, now)
        states += [e.after for e in events]
        alert = alert if alert is not None and alert.state.is_open else None

    assert states[-2:] == [AlertState.FIRING, AlertState.RESOLVED], f"seed={seed} {states}"
    assert alert is None, f"seed={seed}"


def test_a_clock_that_goes_back_does_not_move_instants_of_an_alert_back():
    alert, _ = step(None, IDENTITY, Reading(ReadingKind.ACTIVE, "r"), Timing(60), NOW)

    after, events = step(alert, IDENTITY, Reading(ReadingKind.ACTIVE, "r"), Timing(60), NOW - timedelta(hours=1))

    assert (after.evaluated_at, events) == (NOW, ())
