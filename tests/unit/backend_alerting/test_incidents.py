"""Tests of which alerts become one incident. For random episodes, the rule is checked against its definition."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta

import pytest

from backend.alerting.incidents import INCIDENT_GAP, Cause, assign, cause_of, subject_of
from backend.alerting.labels import AlertId
from backend.alerting.lifecycle import Reading, ReadingKind
from tests.support.drawn_alerts import drawn_alerts

_SECOND = timedelta(seconds=1)


def _pair(*, gap, first=None, second=None):
    """Return two episodes of one job. The second begins ``gap`` after the first ended."""
    one, two = drawn_alerts(1, 2)
    identity = replace(one.identity, job_id="j1", target_id="t1")
    end = one.began_at + timedelta(minutes=1)
    texts = [{"summary": "s", **(t or {})} for t in (first, second)]
    readings = [Reading(ReadingKind.ACTIVE, "so it is", annotations=t) for t in texts]
    return [
        replace(one, id=AlertId("a1"), identity=identity, ended_at=end, reading=readings[0]),
        replace(
            two,
            id=AlertId("a2"),
            identity=replace(identity, rule="CheckpointStuck"),
            began_at=end + gap,
            ended_at=None,
            reading=readings[1],
        ),
    ]


def _named(kind, vertex, phase):
    return {"cause": kind, "vertex": vertex, "phase": phase}


@pytest.mark.parametrize(
    ("gap", "count"), [(-30 * _SECOND, 1), (timedelta(), 1), (INCIDENT_GAP, 1), (INCIDENT_GAP + _SECOND, 2)]
)
def test_an_episode_continues_an_incident_that_is_open_or_ended_at_most_ten_minutes_before(gap, count):
    assert len(set(assign(_pair(gap=gap), ())[0].values())) == count


@pytest.mark.parametrize(
    ("first", "second", "count"),
    [
        (_named("skew", "map", "alignment"), _named("skew", "map", "alignment"), 1),
        (_named("skew", "map", "start-delay"), _named("straggler", "map", "alignment"), 1),
        (_named("skew", "map", "alignment"), _named("skew", "join", "alignment"), 2),
        (_named("store", "map", "async"), _named("skew", "map", "alignment"), 2),
        (_named("store", "not known", "async"), _named("store", "map", "async"), 1),
        (None, _named("skew", "map", "alignment"), 1),
        # Without a kind of cause, the vertex is not a cause: it only has not acknowledged. So the vertex is ignored.
        ({"vertex": "join"}, _named("skew", "map", "alignment"), 1),
    ],
)
def test_causes_that_name_different_vertices_or_phases_are_different_incidents(first, second, count):
    assert len(set(assign(_pair(gap=_SECOND, first=first, second=second), ())[0].values())) == count


def test_an_episode_joins_the_incident_that_names_its_vertex():
    causes = {"first": _named("skew", "map", "alignment"), "second": _named("store", "not known", "async")}
    first, second = _pair(gap=_SECOND, **causes)
    # The phase is not known, so the cause agrees with both incidents. The second one is newer.
    named = Reading(ReadingKind.ACTIVE, "so it is", annotations=_named("skew", "map", "not known"))
    third = replace(second, id=AlertId("a3"), began_at=second.began_at + _SECOND, reading=named)

    assert assign([first, second, third], ())[0] == {"a1": "i1", "a2": "i2", "a3": "i1"}


def test_an_alert_of_the_service_is_an_incident_of_its_rule():
    one = drawn_alerts(1, 1)[0]
    identity = replace(one.identity, job_id=None, target_id=None, rule="Watchdog")

    assert subject_of(identity) == "rule:Watchdog"
    assert subject_of(replace(identity, target_id="t1")) == "target:t1"
    assert subject_of(replace(identity, target_id="t1", job_id="j1")) == "job:j1"


@pytest.mark.parametrize("seed", range(60))
def test_each_episode_belongs_to_one_incident_in_any_order(seed):
    alerts = drawn_alerts(seed, 40)
    assigned = assign(alerts, ())[0]

    shuffled = random.Random(seed).sample(alerts, len(alerts))
    assert assign(shuffled, ())[0] == assigned, f"seed={seed}"
    assert assigned.keys() == {a.id for a in alerts}, f"seed={seed}"
    for incident in set(assigned.values()):
        own = sorted((a for a in alerts if assigned[a.id] == incident), key=lambda a: (a.began_at, a.id))
        assert incident == "i" + own[0].id[1:], f"seed={seed}"
        assert len({subject_of(a.identity) for a in own}) == 1, f"seed={seed}"
        end, cause = own[0].began_at, Cause()
        for alert in own:
            assert end is None or alert.began_at <= end + INCIDENT_GAP, f"seed={seed} {alert.id}"
            assert cause.agrees_with(cause_of(alert.reading)), f"seed={seed} {alert.id}"
            cause = cause.filled_from(cause_of(alert.reading))
            end = None if end is None or alert.ended_at is None else max(end, alert.ended_at)


@pytest.mark.parametrize("seed", range(60))
def test_episodes_that_are_assigned_as_they_begin_get_the_same_incidents(seed):
    alerts = sorted(drawn_alerts(seed, 40), key=lambda a: (a.began_at, a.id))
    assigned, known = {}, {}
    for number, alert in enumerate(alerts):
        # An evaluator sees the earlier episodes as they are at this time, so later ends are not known yet.
        seen = [_as_of(i, alerts[:number], assigned, alert.began_at) for i in known.values()]
        added, changed = assign([replace(alert, ended_at=None)], seen)
        assigned |= added
        known |= {i.id: i for i in changed}

    assert assigned == assign(alerts, ())[0], f"seed={seed}"


def _as_of(incident, alerts, assigned, now):
    ends = [a.ended_at for a in alerts if assigned[a.id] == incident.id]
    return replace(incident, ended_at=None if any(e is None or e > now for e in ends) else max(ends))
