"""Tests of the rules' conditions: when each is active or unknown, and which job or subtask the alert names.

If the data is old, the condition is unknown.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.alerting.conditions import health_window_ms, read
from backend.alerting.lifecycle import LinkedCheckpoint, ReadingKind
from backend.alerting.rules import RULES, RuleName, Subject, rule_of, shipped
from backend.alerting.signals import OpenSignal, Place, RunSpan
from backend.analysis.health.finish import predict
from backend.analysis.health.progress import Judged, Judgement, OpenCheckpoint
from backend.analysis.words.thresholds import FINISH_WARN_AGAIN_RATIO, FINISH_WARN_RATIO
from backend.domain import losses
from backend.domain.checkpoint import CheckpointConfig
from backend.domain.observation import JobState
from backend.domain.replay_debt import DebtOrigin, ReplayDebt
from backend.domain.verdict import Intermittence, Phase, VerdictKind
from tests.support.alert_signals import CONFIG, RUN, growth, job_signal, linear_past, refusal
from tests.support.observations import NOW

JOB_RULES = [r for r in RULES if r.subject is Subject.JOB]
CHECKPOINT_RULES = [r for r in JOB_RULES if r.name is not RuleName.JOB_UNREADABLE]


def _rule(name, **thresholds):
    settings = shipped(rule_of(name))
    return replace(settings, thresholds=dict(settings.thresholds) | thresholds)


def _open(
    elapsed_ms, acknowledged, *, last_ms=None, state=Judged.PROGRESSING, past=(), waiting=None, timeout_ms=60_000
):
    return OpenSignal(
        run_id=RUN,
        checkpoint_id=50,
        triggered_at=NOW - timedelta(milliseconds=elapsed_ms),
        running=OpenCheckpoint(elapsed_ms, acknowledged, 10, last_ms, timeout_ms),
        past=tuple(past),
        judgement=Judgement(state, "no acknowledgement for 40 s", 900.0),
        silent_ms=elapsed_ms - (last_ms or 0),
        waiting=waiting or Place(),
    )


@pytest.mark.parametrize(
    ("outcomes", "kind"),
    [
        (["completed"] * 5, ReadingKind.CLEAR),
        ([], ReadingKind.CLEAR),
        (["completed", "expired"], ReadingKind.ACTIVE),
        (["expired", "completed", "completed"], ReadingKind.ACTIVE),
        (["expired", "completed", "completed", "completed"], ReadingKind.CLEAR),
        (["declined", "declined", "declined"], ReadingKind.CLEAR),
    ],
)
def test_an_expired_checkpoint_counts_while_it_is_among_the_newest_three(outcomes, kind):
    assert read(_rule("CheckpointExpired"), job_signal(*outcomes)).kind is kind


def test_a_condition_uses_the_current_thresholds_of_its_rule():
    signal = job_signal("expired", "completed", "expired")

    assert read(_rule("CheckpointExpired", expired_min_count=3), signal).kind is ReadingKind.CLEAR
    assert read(_rule("CheckpointExpired", expired_min_count=2), signal).kind is ReadingKind.ACTIVE


@pytest.mark.parametrize(
    ("outcomes", "kind"),
    [
        (["expired", "declined"], ReadingKind.CLEAR),
        (["completed", "expired", "declined", "expired"], ReadingKind.ACTIVE),
        (["expired", "declined", "expired", "completed"], ReadingKind.CLEAR),
    ],
)
def test_three_failures_in_a_row_are_active_until_a_checkpoint_completes(outcomes, kind):
    assert read(_rule("ConsecutiveFailures"), job_signal(*outcomes)).kind is kind


@pytest.mark.parametrize(
    ("config", "window_s"),
    [
        (CONFIG, 60 * 4),
        (replace(CONFIG, interval_ms=300_000), 300 * 4),
        (replace(CONFIG, min_pause_ms=7_200_000), 7_200 * 4),
        # An unlimited tolerance for failed checkpoints does not make the window unlimited.
        (replace(CONFIG, tolerable_failed_count=2**31 - 1), 60 * 5),
        (replace(CONFIG, tolerable_failed_count=None), 60 * 2),
        (replace(CONFIG, timeout_ms=None), None),
        (None, None),
    ],
)
def test_the_health_window_follows_interval_timeout_and_tolerance(config, window_s):
    window_ms = health_window_ms(job_signal(config=config))

    assert window_ms == (None if window_s is None else window_s * 1000)


def test_checkpoints_triggered_less_often_than_configured_widen_the_window():
    triggers = tuple(NOW - timedelta(minutes=5 * i) for i in range(6, 0, -1))

    assert health_window_ms(job_signal(triggers=triggers)) == 300_000 * 4


@pytest.mark.parametrize(
    ("completed_s", "started_s", "kind"),
    [(239, 9000, ReadingKind.CLEAR), (241, 9000, ReadingKind.ACTIVE), (9000, 100, ReadingKind.CLEAR)],
)
def test_no_completed_checkpoint_in_the_window_is_active_unless_the_run_is_younger(completed_s, started_s, kind):
    signal = job_signal(
        last_completed_at=NOW - timedelta(seconds=completed_s), run_started_at=NOW - timedelta(seconds=started_s)
    )

    assert read(_rule("NoCompletedCheckpoint"), signal).kind is kind


def _debt(seconds, origin=DebtOrigin.CHECKPOINT, *, is_at_least=False):
    return ReplayDebt(NOW - timedelta(seconds=seconds), origin, 7, is_at_least)


@pytest.mark.parametrize(
    ("debt_s", "config", "kind"),
    [
        (899, CONFIG, ReadingKind.CLEAR),
        (901, CONFIG, ReadingKind.ACTIVE),
        # With an interval of an hour, a debt of an hour is what a healthy job has.
        (3700, replace(CONFIG, interval_ms=3_600_000), ReadingKind.CLEAR),
        (3700 * 4, replace(CONFIG, interval_ms=3_600_000), ReadingKind.ACTIVE),
        (9000, CheckpointConfig(), ReadingKind.UNKNOWN),
    ],
)
def test_a_replay_debt_is_active_beyond_both_the_least_debt_and_the_health_window(debt_s, config, kind):
    assert read(_rule("ReplayDebt"), job_signal(debt=_debt(debt_s), config=config)).kind is kind


def test_a_debt_that_is_not_known_neither_raises_nor_resolves_an_alert():
    assert read(_rule("ReplayDebt"), job_signal()).kind is ReadingKind.UNKNOWN


def test_the_alert_on_a_debt_says_what_a_failure_would_replay_and_from_where():
    reading = read(_rule("ReplayDebt"), job_signal("completed", "expired", debt=_debt(2100)))

    assert reading.reason == "orders: a failure now would replay 35 min of input"
    assert (
        "It counts since checkpoint 7, the newest that a failure would restore. " in reading.annotations["description"]
    )
    assert reading.annotations["replay_debt"] == "35 min"
    assert reading.value == 2100
    assert reading.checkpoints[0] == LinkedCheckpoint(RUN, 7)
    least = read(_rule("ReplayDebt"), job_signal(debt=_debt(2100, DebtOrigin.RESTORED, is_at_least=True)))
    assert "replay at least 35 min of input" in least.reason


def test_every_alert_on_a_job_says_what_a_failure_would_replay():
    signal = job_signal(*["expired"] * 4, last_completed_at=NOW - timedelta(hours=1), debt=_debt(2100))
    active = [r for rule in CHECKPOINT_RULES if (r := read(shipped(rule), signal)).kind is ReadingKind.ACTIVE]

    assert len(active) >= 4
    for reading in active:
        assert reading.annotations["replay_debt"] == "35 min"
        assert reading.annotations["description"].lower().count("a failure now would replay 35 min of input") == 1


@given(
    interval_ms=st.integers(100, 4 * 3_600_000),
    timeout_ms=st.integers(1_000, 3_600_000),
    tolerable=st.integers(0, 10),
    shares=st.lists(st.floats(0.0, 1.0), min_size=2, max_size=6),
)
@settings(max_examples=200, deadline=None)
def test_a_job_whose_checkpoints_complete_within_their_timeout_never_meets_the_rule(
    interval_ms, timeout_ms, tolerable, shares
):
    config = replace(CONFIG, interval_ms=interval_ms, timeout_ms=timeout_ms, tolerable_failed_count=tolerable)
    trigger, worst = 0.0, 0.0
    for before, share in pairwise(shares):
        following = trigger + max(interval_ms, before * timeout_ms)
        # The debt is largest just before the next checkpoint completes.
        worst = max(worst, following + share * timeout_ms - trigger)
        trigger = following
    signal = job_signal(config=config, debt=_debt(worst / 1000), triggers=())

    assert read(_rule("ReplayDebt", debt_min_s=10.0), signal).kind is ReadingKind.CLEAR


def _loop(count, *, ran_s, apart_s, current_s=20):
    """Return ``count`` ended runs of a job, newest first, and the start of the current run, as fields of a signal."""
    began, spans = NOW - timedelta(seconds=current_s), []
    at = began
    for _ in range(count):
        ended_at = at - timedelta(seconds=apart_s)
        at = ended_at - timedelta(seconds=ran_s)
        spans.append(RunSpan(at, ended_at))
    return {"run_started_at": began, "runs_before": tuple(spans)}


@pytest.mark.parametrize(
    ("loop", "completed_s", "kind"),
    [
        # The alert allows 240 s of running time without a completed checkpoint, and 360 s if the running time is the
        # sum of several runs.
        (_loop(11, ran_s=30, apart_s=5), None, ReadingKind.CLEAR),
        (_loop(12, ran_s=30, apart_s=5), None, ReadingKind.ACTIVE),
        # Runs before the last completed checkpoint do not count, and runs before a pause of more than 360 s do not
        # count either.
        (_loop(12, ran_s=30, apart_s=5), 300, ReadingKind.CLEAR),
        (_loop(12, ran_s=30, apart_s=360), None, ReadingKind.ACTIVE),
        (_loop(12, ran_s=30, apart_s=361), None, ReadingKind.CLEAR),
        # Only the running time counts, not the pauses between the runs.
        (_loop(3, ran_s=30, apart_s=300), None, ReadingKind.CLEAR),
        # A healthy job was redeployed once. In each of the two runs, it may have been waiting for its next
        # checkpoint.
        (_loop(1, ran_s=7200, apart_s=10, current_s=119), 370, ReadingKind.CLEAR),
        (_loop(1, ran_s=7200, apart_s=10, current_s=119), 371, ReadingKind.ACTIVE),
        (_loop(1, ran_s=0, apart_s=10, current_s=241), None, ReadingKind.ACTIVE),
        # The earlier run and the current run overlap in time.
        (_loop(1, ran_s=7200, apart_s=-7200, current_s=230), None, ReadingKind.CLEAR),
    ],
)
def test_runs_that_end_without_a_completed_checkpoint_count_together(loop, completed_s, kind):
    completed = {"last_completed_at": None, "last_completed": None}
    if completed_s is not None:
        completed = {"last_completed_at": NOW - timedelta(seconds=completed_s)}

    reading = read(_rule("NoCompletedCheckpoint"), job_signal("expired", **loop, **completed))

    assert reading.kind is kind, reading.reason


def test_the_reason_gives_the_count_of_runs():
    loop = _loop(12, ran_s=30, apart_s=5) | {"last_completed_at": None, "last_completed": None}

    assert read(_rule("NoCompletedCheckpoint"), job_signal(**loop)).reason.endswith("for 6 min 20 s over 13 runs")


@pytest.mark.parametrize(
    ("ago_s", "kind"), [(0, ReadingKind.UNKNOWN), (360, ReadingKind.UNKNOWN), (361, ReadingKind.GONE)]
)
def test_after_a_run_the_alert_stays_open_until_the_next_run_is_overdue(ago_s, kind):
    signal = job_signal("expired", state=JobState.ENDED, ended_ago_s=ago_s)

    assert read(_rule("NoCompletedCheckpoint"), signal).kind is kind
    assert read(_rule("CheckpointExpired"), signal).kind is ReadingKind.GONE


def test_a_job_without_a_completed_checkpoint_is_judged_from_its_start():
    signal = job_signal("expired", last_completed_at=None, last_completed=None)

    reading = read(_rule("NoCompletedCheckpoint"), signal)

    assert reading.kind is ReadingKind.ACTIVE
    assert reading.checkpoints == (LinkedCheckpoint(RUN, 1),)


def test_unknown_settings_give_an_unknown_reading():
    signal = job_signal(config=CheckpointConfig(), last_completed_at=NOW - timedelta(days=1))

    assert read(_rule("NoCompletedCheckpoint"), signal).kind is ReadingKind.UNKNOWN


def test_a_predicted_timeout_states_probability_age_and_basis():
    past = [linear_past(d) for d in (4000, 4200, 4400, 4100, 4300)]
    opened = _open(57_000, 2, last_ms=20_000, past=past, waiting=Place("sink", (4,), ("host-2",)))

    reading = read(_rule("CheckpointWillTimeOut"), job_signal("completed", opened=opened, place=Place()))

    assert reading.kind is ReadingKind.ACTIVE
    text = reading.annotations["description"]
    assert "checkpoint 50 will probably exceed its timeout of 1 min" in text
    assert ": 95 % of checkpoints of this age do (estimated from 5 checkpoints that had come as far; 0 of them" in text
    assert "2 of 10 subtasks have acknowledged after 57.0 s" in text
    # The verdict names no subtask, so the alert names the subtask that has not acknowledged.
    assert "sink subtask 4 on host-2" in text


# In each case, nothing is wrong with the running checkpoint: there is none, there is no forecast, the forecast is good,
# or it progresses.
CALM = {
    "none": ("CheckpointWillTimeOut", None),
    "no forecast": ("CheckpointWillTimeOut", _open(30_000, 2, last_ms=20_000, past=[linear_past(4000)] * 2)),
    "in time": ("CheckpointWillTimeOut", _open(900, 2, last_ms=800, past=[linear_past(4000 + i) for i in range(6)])),
    "no stuck one": ("CheckpointStuck", None),
    "progressing": ("CheckpointStuck", _open(900, 2, last_ms=800)),
}


@pytest.mark.parametrize("name", CALM)
@pytest.mark.parametrize(
    ("outcomes", "count", "kind"),
    [
        (["completed", "completed"], 2, ReadingKind.CLEAR),
        (["expired", "completed"], 2, ReadingKind.UNKNOWN),
        (["expired", "completed"], 1, ReadingKind.CLEAR),
        (["completed", "expired"], 1, ReadingKind.UNKNOWN),
        (["completed"], 2, ReadingKind.UNKNOWN),
        ([], 2, ReadingKind.UNKNOWN),
    ],
)
def test_a_calm_running_checkpoint_ends_an_alert_only_after_completed_ones(name, outcomes, count, kind):
    rule, opened = CALM[name]

    assert read(_rule(rule, completed_min_count=count), job_signal(*outcomes, opened=opened)).kind is kind


def test_a_forecast_near_the_timeout_neither_raises_nor_resolves_an_alert():
    past = [linear_past(d) for d in (4000, 9000, 4400, 8000, 4300)]
    opened = _open(45_000, 2, last_ms=20_000, past=past)
    assert 0.5 < predict(opened.running, past).expiry_ratio < 0.85

    reading = read(_rule("CheckpointWillTimeOut"), job_signal("completed", "completed", opened=opened))

    assert reading.kind is ReadingKind.UNKNOWN, reading.reason
    assert "will probably reach its timeout" in reading.reason


def test_a_probability_is_enough_after_an_expiry_that_is_too_low_for_the_first_warning():
    past = [linear_past(d) for d in (4000, 9000, 4400, 8000, 4300)]
    opened = _open(53_000, 2, last_ms=20_000, past=past)
    ratio = predict(opened.running, past).expiry_ratio
    assert FINISH_WARN_AGAIN_RATIO < ratio < FINISH_WARN_RATIO, ratio
    calm, after = (job_signal(*o, opened=opened) for o in (["completed"] * 4, ["expired", "completed", "completed"]))

    assert read(_rule("CheckpointWillTimeOut"), calm).kind is ReadingKind.UNKNOWN
    assert read(_rule("CheckpointWillTimeOut"), after).kind is ReadingKind.ACTIVE
    over = job_signal("expired", *["completed"] * 3, opened=opened)
    assert read(_rule("CheckpointWillTimeOut"), over).kind is ReadingKind.UNKNOWN


def test_an_alert_below_the_usual_probability_says_which_one_was_enough_and_why():
    opened = _open(53_000, 2, last_ms=20_000, past=[linear_past(d) for d in (4000, 9000, 4400, 8000, 4300)])
    text = read(_rule("CheckpointWillTimeOut"), job_signal("expired", opened=opened)).annotations["description"]

    why = "because one of the newest 3 ended checkpoints expired. "
    assert f"The alert fires from 80 % on instead of 92 %, {why}" in text


def test_an_alert_of_the_usual_probability_does_not_mention_a_lower_one():
    opened = _open(57_100, 2, last_ms=20_000, past=[linear_past(d) for d in (4000, 4200, 4400, 4100, 4300)])
    text = read(_rule("CheckpointWillTimeOut"), job_signal("completed", opened=opened)).annotations["description"]

    assert "will probably exceed its timeout" in text
    assert "The alert fires from" not in text


def test_without_a_prediction_the_rule_falls_back_to_the_age():
    past = [linear_past(4000)] * 2
    young, old = (_open(at_ms, 2, last_ms=20_000, past=past) for at_ms in (53_000, 55_000))
    signals = [job_signal("completed", "completed", opened=o) for o in (young, old)]

    assert [read(_rule("CheckpointWillTimeOut"), s).kind for s in signals] == [ReadingKind.CLEAR, ReadingKind.ACTIVE]
    text = read(_rule("CheckpointWillTimeOut"), signals[1]).annotations["description"]
    assert "checkpoint 50 has used up more than 90 % of its timeout of 1 min." in text
    assert "Its finish is not predictable yet: only 2 checkpoints" in text


def test_all_failures_in_a_row_are_counted_although_the_signal_lists_only_the_newest():
    signal = job_signal(*["expired"] * 15)

    for count, words in ((0, "the last 15 checkpoints"), (70, "the last 70 checkpoints"), (1000, "1000 or more")):
        reading = read(_rule("ConsecutiveFailures"), replace(signal, failures_in_row_count=count))
        assert words in reading.reason
        assert reading.value == max(15, count)


_WITHOUT_CHECKPOINTS = (RuleName.JOB_RESTARTS, RuleName.ROWS_LOST)


@pytest.mark.parametrize("rule", [r for r in JOB_RULES if r.name not in _WITHOUT_CHECKPOINTS], ids=lambda r: r.name)
def test_no_rule_on_checkpoints_fires_while_checkpointing_is_off(rule):
    off = CheckpointConfig(timeout_ms=60_000, is_off=True)
    reading = read(shipped(rule), job_signal("expired", "expired", "expired", config=off))

    assert (reading.kind, reading.reason) == (ReadingKind.CLEAR, "checkpointing is off")


def test_a_job_whose_checkpoints_are_off_may_still_restart_again_and_again():
    off = CheckpointConfig(timeout_ms=60_000, is_off=True)
    signal = job_signal(config=off, restarted_at=restarts(10, 40, 70))

    assert read(_rule("JobRestarts"), signal).kind is ReadingKind.ACTIVE


def restarts(*seconds_ago):
    return tuple(NOW - timedelta(seconds=s) for s in seconds_ago)


@pytest.mark.parametrize(
    ("restarted_at", "kind"),
    [
        ((), ReadingKind.CLEAR),
        (restarts(10, 40), ReadingKind.CLEAR),
        (restarts(10, 40, 70), ReadingKind.ACTIVE),
        # Four times the usual 30 s have passed without another one.
        (restarts(121, 151, 181), ReadingKind.CLEAR),
        # Three restarts of an hour are no loop.
        (restarts(10, 1_200, 2_400), ReadingKind.CLEAR),
    ],
)
def test_a_job_that_restarts_again_and_again_is_paged_although_its_checkpoints_are_well(restarted_at, kind):
    outside = Place(sentence="The job restarts every 30 s.", cause=VerdictKind.RESTARTS)
    reading = read(_rule("JobRestarts"), job_signal(*["completed"] * 5, restarted_at=restarted_at, place=outside))

    assert reading.kind is kind, reading.reason
    if kind is ReadingKind.ACTIVE:
        assert reading.annotations["summary"] == "orders: the job restarts every 30.0 s"
        description = reading.annotations["description"]
        assert "3 restarts since " in description
        assert description.count("restarts every") == 2, "once as the summary, once as the verdict's sentence"
        assert description.endswith(". The job restarts every 30 s.")
        assert reading.checkpoints


def test_more_restarts_can_be_asked_for():
    signal = job_signal("completed", restarted_at=restarts(10, 40, 70))
    assert read(_rule("JobRestarts", restarts_min_count=4), signal).kind is ReadingKind.CLEAR


def test_an_alert_says_how_often_an_intermittent_cause_strikes():
    found = Intermittence(9, 18, NOW - timedelta(minutes=3), "whenever the input doubles")
    text = read(_rule("CheckpointExpired"), job_signal("expired", intermittence=found)).annotations["description"]
    plain = read(_rule("CheckpointExpired"), job_signal("expired")).annotations["description"]

    assert "The cause is intermittent: it struck 9 of 18 checkpoints since " in text
    assert "UTC, whenever the input doubles. " in text
    assert "intermittent" not in plain


def test_an_alert_on_a_whole_vertex_names_the_subtask_that_checkpoints_wait_for_first():
    place = Place("aggregate", (0, 1, 2, 3), ("host-2",), Phase.START_DELAY, "It is full.", VerdictKind.CAPACITY, 3)
    texts = read(_rule("CheckpointExpired"), job_signal("expired", place=place)).annotations
    plain = read(_rule("CheckpointExpired"), job_signal("expired", place=replace(place, last_subtask=None))).annotations

    assert texts["subtasks"] == "3 (last of 0, 1, 2, 3)"
    assert "aggregate subtask 3 first, the last of its 4 on host-2. It is full." in texts["description"]
    assert plain["subtasks"] == "0, 1, 2, 3"


def test_a_cause_without_a_vertex_is_named_by_its_sentence():
    late = Place(sentence="The coordinator is late.", cause=VerdictKind.COORDINATOR)
    text = read(_rule("CheckpointExpired"), job_signal("expired", place=late)).annotations["description"]
    assert text.endswith("The coordinator is late.")


def test_a_job_that_cannot_be_read_is_reported_with_the_reason_and_its_other_alerts_stay():
    why = "http://flink/jobs/1/checkpoints: the answer has no 'counts'"
    signal = job_signal("expired", unread_reason=why, stale_reason="what its engine reports about it cannot be read")

    reading = read(_rule("JobUnreadable"), signal)
    assert reading.kind is ReadingKind.ACTIVE
    assert "has no 'counts'. Nothing is known about its checkpoints now." in reading.annotations["description"]
    for rule in CHECKPOINT_RULES:
        assert read(_rule(rule.name), signal).kind is ReadingKind.UNKNOWN


def test_a_job_that_is_read_has_no_alert_about_reading():
    assert read(_rule("JobUnreadable"), job_signal("expired")).kind is ReadingKind.CLEAR
    stale = job_signal("expired", stale_reason="its target is unreachable")
    assert read(_rule("JobUnreadable"), stale).kind is ReadingKind.UNKNOWN


def test_a_stuck_checkpoint_is_active_only_after_a_while():
    stuck = _open(40_000, 2, last_ms=0, state=Judged.STUCK)
    soon = _open(9_000, 2, last_ms=0, state=Judged.STUCK)

    done = ["completed"] * 2
    assert read(_rule("CheckpointStuck"), job_signal(*done, opened=stuck)).kind is ReadingKind.ACTIVE
    assert read(_rule("CheckpointStuck"), job_signal(*done, opened=soon)).kind is ReadingKind.CLEAR


@pytest.mark.parametrize("name", ["CheckpointStuck", "CheckpointWillTimeOut"])
def test_a_checkpoint_open_long_after_its_timeout_gives_an_unknown_reading(name):
    opened = _open(63_000, 2, last_ms=1000, state=Judged.STUCK, past=[linear_past(4000 + i) for i in range(6)])

    assert read(_rule(name), job_signal("completed", opened=opened)).kind is ReadingKind.UNKNOWN


@pytest.mark.parametrize("rule", JOB_RULES, ids=lambda r: r.name)
def test_old_data_gives_an_unknown_reading_and_an_ended_job_ends_its_alerts(rule):
    worst = {"last_completed_at": NOW - timedelta(days=1)}
    signal = job_signal("expired", "expired", "expired", **worst)

    assert read(shipped(rule), replace(signal, stale_reason="it was last read 90 s ago")).kind is ReadingKind.UNKNOWN
    assert read(shipped(rule), replace(signal, state=JobState.ENDED)).kind is ReadingKind.GONE
    assert read(shipped(rule), replace(signal, is_watched=False)).kind is ReadingKind.GONE
    assert read(replace(shipped(rule), is_enabled=False), signal).kind is ReadingKind.GONE


@pytest.mark.parametrize("rule", CHECKPOINT_RULES, ids=lambda r: r.name)
def test_every_description_names_job_vertex_subtasks_host_phase_and_checkpoint(rule):
    opened = _open(52_000, 2, last_ms=1000, state=Judged.STUCK, past=[linear_past(4000 + i) for i in range(6)])
    changes = {
        "last_completed_at": NOW - timedelta(days=1),
        "restarted_at": restarts(10, 40, 70),
        "debt": _debt(86_400),
        "refusal": refusal(refused=5),
        "growth": growth(),
        "losses": (losses.read(NOW, f"{losses.EXCEPTION}: {losses.timed_out(3, 1, 1_000)}"),),
    }
    signal = job_signal("expired", "expired", "expired", opened=opened, **changes)

    reading = read(shipped(rule), signal)

    assert reading.kind is ReadingKind.ACTIVE
    for words in ("orders", "enrich subtasks 1 and 3", "host-7", "the alignment of", "Barriers queue before it."):
        assert words in reading.annotations["description"]
    assert reading.annotations["summary"].startswith("orders: ")
    assert reading.checkpoints


@pytest.mark.parametrize("name", ["CheckpointStuck", "CheckpointWillTimeOut"])
def test_an_open_checkpoint_is_not_judged_before_the_past_ones_of_its_job_were_read(name):
    past = [linear_past(d) for d in (4000, 4200, 4400, 4100, 4300)] * 3
    opened = _open(54_000, 2, last_ms=1000, state=Judged.STUCK, past=past)
    whole, unread = (job_signal(*["completed"] * 5, opened=o) for o in (opened, replace(opened, is_past_read=False)))

    assert read(_rule(name), whole).kind is ReadingKind.ACTIVE
    assert read(_rule(name), unread).kind is ReadingKind.UNKNOWN
