"""Tests of the predicted finish of a checkpoint: its interval contains the real finish as often as stated at each age.

If there is no prediction, the reason is given in plain words.
"""

from __future__ import annotations

from dataclasses import replace
from math import exp, inf, log
from random import Random
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.analysis.health.finish import PastCheckpoint, is_warned, past_checkpoint, predict, warned_from
from backend.analysis.health.progress import OpenCheckpoint
from backend.analysis.words import thresholds as t
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.failure import FailureReason
from backend.domain.ids import VertexId
from backend.domain.progress import Outlook
from tests.support.advised_jobs import expired_run, slow_run


def predicted(open_, past, **more):
    found = predict(open_, past, **more)
    assert found is not None
    return found


def completed(*acks_ms):
    return PastCheckpoint(acks_ms, len(acks_ms), acks_ms[-1])


def cut(*acks_ms, at_ms=60_000, subtasks=4):
    return PastCheckpoint(acks_ms, subtasks, at_ms, False)


def opened(elapsed_ms, acknowledged, last_ack_ms=None, timeout_ms=60_000, **more):
    return OpenCheckpoint(elapsed_ms, acknowledged, 4, last_ack_ms, timeout_ms, **more)


PAST = [completed(10, 20, 30, 1_000 * n) for n in range(1, 10)]


def test_the_finish_is_what_earlier_checkpoints_needed_from_the_same_acknowledgement():
    found = predicted(opened(500, 3, 130), PAST)

    # The third acknowledgement is 100 ms later than in the earlier checkpoints.
    assert found.outlook is Outlook.FINISHES
    assert 4_800 < found.likely_ms < 6_500, "the middle of 1.1 to 9.1 s, of which the later ones are newer"
    assert 900 < found.low_ms < 2_300
    assert found.high_ms > 9_000
    assert (found.compared_count, found.longer_count) == (9, 9)
    assert found.coverage_ratio == pytest.approx(0.9)
    assert found.expiry_ratio < 0.05
    assert found.words.startswith("will probably finish 5.")
    assert "(90 % of checkpoints of this age finish between 1" in found.words
    assert "estimated from 9 checkpoints that had come as far; 9 of them took longer from there" in found.words


def test_with_age_the_earlier_checkpoints_that_would_have_ended_count_less():
    young, old = predicted(opened(100, 3, 30), PAST), predicted(opened(6_500, 3, 30), PAST)

    assert young.likely_ms < 6_500 < old.low_ms < old.likely_ms < 10_000
    assert old.longer_count == 3


def test_a_checkpoint_beyond_all_earlier_ones_is_the_likelier_to_expire_the_longer_it_waits():
    ratios = [predicted(opened(at_ms, 3, 30), PAST).expiry_ratio for at_ms in (5_000, 15_000, 30_000, 50_000)]

    assert ratios == sorted(ratios)
    assert ratios[0] < 0.1
    assert ratios[-1] > 0.8
    late = predicted(opened(50_000, 3, 30), PAST)
    assert (late.outlook, late.likely_ms, late.plain_rule_ms) == (Outlook.TIMES_OUT, None, 48_000)
    assert "timeout of 1 min: 8" in late.words
    assert "% of checkpoints of this age do" in late.words


def test_an_expired_checkpoint_only_says_that_it_needed_more_than_its_length():
    always = [cut(10, 20, 30, at_ms=10_000)] * 9
    same = predicted(opened(500, 3, 30, 10_000), always)
    longer = predicted(opened(500, 3, 30, 60_000), always)

    assert same.expiry_ratio > 0.85
    assert same.low_ms is None or same.low_ms > 1_000
    assert 0.1 < longer.expiry_ratio < 0.5, "the timeout was raised: the earlier ones ended before it"
    assert longer.low_ms > 3_000


def test_an_aborted_checkpoint_that_was_young_hardly_changes_the_prediction():
    plain = predicted(opened(500, 3, 30), PAST)
    aborted = predicted(opened(500, 3, 30), [cut(10, 20, 30, at_ms=400), *PAST])
    gone = predicted(opened(500, 3, 30), [cut(10, at_ms=55_000), *PAST])

    assert aborted.likely_ms == pytest.approx(plain.likely_ms, rel=0.05)
    assert aborted.expiry_ratio < 0.05
    assert (gone.compared_count, gone.likely_ms) == (9, pytest.approx(plain.likely_ms, rel=0.01)), (
        "it did not come so far"
    )


def test_the_prediction_follows_a_job_that_became_slower():
    slow = [completed(10, 20, 30, 20_000 + 100 * n) for n in range(4)]
    found = predicted(opened(30, 3, 30), [*[completed(10, 20, 30, 1_000)] * 16, *slow])
    late = predicted(opened(3_000, 3, 30), [*[completed(10, 20, 30, 1_000)] * 16, *slow])

    assert found.high_ms > 19_000, "the newest ones are inside the interval at once"
    assert late.likely_ms == pytest.approx(20_000, rel=0.1), "and after three seconds they alone count"


def test_earlier_checkpoints_with_like_progress_count_more():
    quick = [completed(10, 20, 30, 1_000)] * 8
    late = [completed(10, 20, 5_000, 40_000)] * 8
    mixed = [c for pair in zip(quick, late, strict=True) for c in pair]

    assert predicted(opened(5_000, 3, 5_000), mixed).likely_ms > 30_000
    assert predicted(opened(35, 3, 30), mixed).likely_ms < 2_000


def test_late_first_barriers_make_earlier_checkpoints_count_less():
    keys = [(VertexId("sink"), i) for i in range(3)]
    past = [replace(p, first_barriers_ms=dict.fromkeys(keys, 5)) for p in PAST]
    on_time = predicted(opened(800, 0, first_barriers_ms=dict.fromkeys(keys, 5)), past)
    late = predicted(opened(800, 0, first_barriers_ms=dict.fromkeys(keys, 780)), past)

    assert late.expiry_ratio > on_time.expiry_ratio


def test_without_enough_to_compare_with_there_is_a_sentence_and_no_number():
    none, few = predicted(opened(500, 0), []), predicted(opened(500, 0), PAST[:4])
    others = predicted(opened(500, 0), [completed(1, 2)] * 9)
    far = predicted(opened(500, 3, 100), [cut(10, 20)] * 9)

    assert none.words == (
        "not predictable yet: no earlier checkpoint under the present settings to compare with, 5 are needed"
    )
    assert few.words.startswith("not predictable yet: only 4 checkpoints under")
    assert others.words.startswith("not predictable yet: no earlier checkpoint of 4 subtasks under")
    assert far.words == "not predictable: none of the last 9 checkpoints had come as far, 3 of 4 acknowledgements"
    for found in (none, few, others, far):
        assert found.outlook is Outlook.UNKNOWN
        assert (found.likely_ms, found.low_ms, found.high_ms, found.expiry_ratio, found.coverage_ratio) == (None,) * 5


def test_without_a_timeout_there_is_a_finish_but_no_probability_of_a_timeout():
    found = predicted(opened(500, 3, 30, None), PAST)

    assert (found.expiry_ratio, found.plain_rule_ms) == (None, None)
    assert 4_000 < found.likely_ms < 7_000
    assert "timeout" not in found.words


def test_an_ended_checkpoint_has_no_prediction():
    assert predict(opened(500, 3, status=CheckpointStatus.FAILED), PAST) is None
    assert predict(opened(500, 4), PAST) is None


def test_expired_and_aborted_checkpoints_are_censored_at_their_length():
    slow, over = slow_run(1)[0], expired_run(1)[0]
    whole, expired = past_checkpoint(slow), past_checkpoint(over)

    assert (whole.end_ms, whole.has_completed) == (max(whole.acks_ms), True)
    assert (expired.end_ms, expired.has_completed) == (over.header.end_to_end_duration_ms, False)
    assert len(expired.acks_ms) < expired.subtask_count
    header = replace(over.header, failure_reason=FailureReason.TASK_FAILURE, end_to_end_duration_ms=700)
    aborted = past_checkpoint(replace(over, header=header))
    assert (aborted.end_ms, aborted.has_completed) == (700, False)
    unknown = replace(over.header, end_to_end_duration_ms=None)
    assert past_checkpoint(replace(over, header=unknown)) is None


def _plain_survival(open_, past, at_ms, *, after_cut_ms=0.0):
    """Return the weight of the cases in which the end is after ``at_ms``, written down once more without arrays.

    Censored ones count only if they were cut after ``after_cut_ms``.
    """
    since_ms, total = open_.last_ack_ms or 0, 0.0
    for ago, p in enumerate(reversed(past)):
        if len(p.acks_ms) < open_.acknowledged_count:
            continue
        own_ms = p.acks_ms[open_.acknowledged_count - 1] if open_.acknowledged_count else 0
        damping_ms = t.FINISH_DAMPING_RATIO * p.end_ms
        weight = t.FINISH_FADE_RATIO**ago
        if open_.acknowledged_count:
            how_late = log((since_ms + damping_ms) / (own_ms + damping_ms))
            weight *= exp(-0.5 * (how_late / t.FINISH_LIKENESS_LOG) ** 2)
        end_ms = max(1.0, since_ms + p.end_ms - own_ms)
        if p.has_completed:
            ratio = at_ms / end_ms
            total += 0.0 if ratio > 1e9 else weight / (1 + ratio**t.FINISH_SPREAD_POWER)
        elif end_ms > after_cut_ms:
            if at_ms > end_ms:
                later = {"after_cut_ms": end_ms}
                weight *= _plain_survival(open_, past, at_ms, **later) / _plain_survival(open_, past, end_ms, **later)
            total += weight
    waited = (at_ms - since_ms) / max(1.0, median(p.end_ms for p in past))
    return total + t.FINISH_UNLIKE_WEIGHT * (1 + max(0.0, waited)) ** -t.FINISH_TAIL_POWER


def _tail_at(age_ratio):
    if age_ratio > 0.5:
        return 0.05
    if age_ratio > 0.25:
        return t.FINISH_MIDDLE_TAIL_RATIO
    return t.FINISH_EARLY_TAIL_RATIO if age_ratio > 0.02 else t.FINISH_YOUNG_TAIL_RATIO


@pytest.mark.parametrize("seed", range(30))
def test_the_prediction_follows_the_stated_formulas(seed):
    rnd = Random(seed)
    past = []
    for _ in range(rnd.randrange(5, 21)):
        end_ms = rnd.randrange(100, 59_000)
        acks = sorted(rnd.randrange(1, end_ms) for _ in range(3))
        is_cut = rnd.random() < 0.25
        past.append(cut(*acks[: rnd.randrange(4)], at_ms=end_ms) if is_cut else completed(*acks, end_ms))
    count = rnd.randrange(0, 3)
    last_ms = rnd.randrange(1, 30_000) if count else None
    open_ = opened((last_ms or 0) + rnd.randrange(1, 20_000), count, last_ms)

    found = predicted(open_, past)

    now = _plain_survival(open_, past, open_.elapsed_ms)
    assert found.expiry_ratio == pytest.approx(_plain_survival(open_, past, 60_000) / now), f"seed {seed}"
    tail = _tail_at(open_.elapsed_ms / 60_000)
    for value, share in ((found.low_ms, 1 - tail), (found.likely_ms, 0.5), (found.high_ms, tail)):
        if value is not None:
            # The value is interpolated between points less than 10 % apart.
            assert _plain_survival(open_, past, value * 1.05) / now <= share + 1e-9, f"seed {seed}"
            assert _plain_survival(open_, past, value / 1.1) / now >= share - 1e-9 or value / 1.1 < open_.elapsed_ms


@given(
    past=st.lists(st.lists(st.integers(1, 90_000), min_size=7, max_size=7).map(sorted), min_size=5, max_size=12),
    elapsed_ms=st.integers(0, 59_999),
    acknowledged=st.integers(0, 6),
)
def test_a_prediction_is_not_before_the_present_and_before_the_timeout(past, elapsed_ms, acknowledged):
    open_ = OpenCheckpoint(elapsed_ms, acknowledged, 7, elapsed_ms // 2, 60_000)
    found = predicted(open_, [completed(*acks) for acks in past])

    values = [v for v in (found.low_ms, found.likely_ms, found.high_ms) if v is not None]
    assert values == sorted(values)
    assert all(elapsed_ms <= v <= 60_000 for v in values)
    assert 0 <= found.expiry_ratio <= 1
    assert 0 <= found.coverage_ratio <= 1


@pytest.mark.parametrize("age_ratio", [0.1, 0.25, 0.26, 0.5, 0.51, 0.6])
def test_the_tails_of_the_interval_depend_on_the_age_and_the_stated_share_does_not(age_ratio):
    open_ = opened(round(age_ratio * 200_000), 0, None, 200_000)
    past = [completed(10, 20, 30, 130_000 + 500 * n) for n in range(20)]

    found = predicted(open_, past)

    assert found.coverage_ratio == pytest.approx(t.FINISH_INTERVAL_RATIO)
    now, tail = _plain_survival(open_, past, open_.elapsed_ms), _tail_at(age_ratio)
    assert _plain_survival(open_, past, found.low_ms) / now == pytest.approx(1 - tail, abs=0.005)
    assert _plain_survival(open_, past, found.high_ms) / now == pytest.approx(tail, abs=0.005)


def test_without_a_timeout_the_tails_are_those_that_are_stated():
    past = [completed(10, 20, 30, 130_000 + 500 * n) for n in range(20)]
    open_ = opened(20_000, 0, None, None)

    # Its interval is narrower than the corrected one of the same age.
    with_timeout = predicted(opened(20_000, 0, None, 200_000), past)
    without = predicted(open_, past)

    assert with_timeout.low_ms < without.low_ms < without.high_ms < with_timeout.high_ms


def test_the_interval_holds_as_often_as_it_states_at_every_age():
    """Checkpoints of a random series are predicted from the nineteen before, at several ages."""
    drawn = Random(5)
    runs = [completed(10, 20, 30, 30 + round(drawn.lognormvariate(7, 0.6))) for _ in range(419)]
    runs = [cut(10, 20, 30, at_ms=3_000) if r.end_ms > 3_000 else r for r in runs]
    for age_ms in (40, 600, 1_200, 2_000):
        held = stated = count = 0
        for n in range(19, len(runs)):
            real = runs[n]
            if real.end_ms <= age_ms:
                continue
            found = predicted(opened(age_ms, 3, 30, 3_000), runs[n - 19 : n])
            end_ms = real.end_ms if real.has_completed else inf
            count += 1
            stated += found.coverage_ratio
            if found.low_ms is None:
                held += not real.has_completed
            else:
                held += found.low_ms <= end_ms and (found.high_ms is None or end_ms <= found.high_ms)
        assert count > 25
        assert held / count == pytest.approx(stated / count, abs=0.08), f"at {age_ms} ms, {count} checkpoints"


@pytest.mark.parametrize(
    ("age_ms", "has_expired_lately", "warn_ratio", "least"),
    [(50_000, False, 0.92, 0.92), (50_000, True, 0.92, 0.8), (57_000, False, 0.92, 0.85), (57_000, True, 0.6, 0.6)],
)
def test_the_probability_of_a_warning_is_lower_after_an_expiry_and_lower_still_just_before_the_timeout(
    age_ms, has_expired_lately, warn_ratio, least
):
    def warned(ratio):
        return is_warned(
            ratio, age_ms=age_ms, timeout_ms=60_000, has_expired_lately=has_expired_lately, warn_ratio=warn_ratio
        )

    assert warned(least)
    assert not warned(least - 0.01)
    enough, why = warned_from(warn_ratio, age_ms=age_ms, timeout_ms=60_000, has_expired_lately=has_expired_lately)
    reasons = {0.8: "one of the newest 3 ended checkpoints expired", 0.85: "at least 95 % of the timeout has passed"}
    assert (enough, why) == (least, reasons.get(least))
