"""What a failure costs: CM-7 and CM-8 by hand, the fit on recoveries that follow the formula, and its bounds."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from backend.advisor.advice import Interval
from backend.advisor.twin.model.model import JobModel
from backend.advisor.twin.model.outages import LOST_WORKER_MS, RESTART_MS
from backend.advisor.twin.model.recovery import (
    Failure,
    ObservedRecovery,
    RecoveryModel,
    cost_in,
    cost_of_failure,
    costs_by_kind,
    fitted,
    left_out,
    outage_ms,
)
from backend.domain.engines import RUNTIME
from backend.domain.errors import InvalidInputError
from backend.domain.replay_debt import ReplayBound
from backend.domain.verdict import Basis
from tests.simulators.recovery_fit import main, read, report, scored
from tests.support.twin_models import ALIGNED, three_vertices

NOW = Interval(100.0, 100.0, 100.0)


def exactly(value: float) -> Interval:
    return Interval(value, value, value)


def with_state(model: JobModel) -> JobModel:
    sink = replace(model.vertices[2], state_bytes=(5e7, 0.0, 0.0, 0.0))
    return replace(model, vertices=(*model.vertices[:2], sink))


def recoveries(*, noise: float = 0.0, cost_ms: float = 500.0) -> list[ObservedRecovery]:
    """Return recoveries of a job with an outage of 60 s that repeats a whole interval, at 10 rates and 5 intervals."""
    rng = np.random.default_rng(1)
    found = []
    for interval in (10_000.0, 30_000.0, 60_000.0, 90_000.0, 120_000.0):
        for rate in np.linspace(1000, 9000, 10):
            pace = rate / (10_000 * (1 - cost_ms / interval) - rate) if rate < 9500 else 0
            time = (60_000 + (60_000 + interval) * pace) * np.exp(noise * rng.standard_normal())
            found.append(ObservedRecovery(interval_ms=interval, rate_per_s=float(rate), recovery_ms=float(time)))
    return found


def test_a_failure_costs_the_restart_the_reading_and_the_backlog():
    # Half of the capacity is free, so the backlog takes as long again as it grew.
    model = with_state(three_vertices(rate_per_s=1000.0, settings=replace(ALIGNED, interval_ms=3000.0)))
    found = cost_in(model, duration_ms=NOW)

    assert found.outage_ms == Interval(RESTART_MS.value + 1000, RESTART_MS.low + 500, RESTART_MS.high + 2000)
    assert found.replay_ms == Interval(1600.0, 100.0, 3100.0)
    assert found.catch_up_ms == Interval(4000.0 + 1600.0, 1500.0 + 100.0, 17_000.0 + 3100.0)
    assert found.recovery_ms == Interval(9600.0, 3100.0, 37_100.0)


@pytest.mark.parametrize(("completed", "intervals"), [(1.0, 0.5), (0.5, 1.5), (0.1, 9.5)])
def test_what_is_read_again_counts_from_the_newest_checkpoint_that_completed(completed, intervals):
    # Without the timeout that holds the next checkpoint back, every trigger is an interval after the one before.
    settings = replace(ALIGNED, interval_ms=3000.0, timeout_ms=3000.0)
    found = cost_in(three_vertices(settings=settings), duration_ms=NOW, completed_ratio=exactly(completed))

    assert found.replay_ms is not None
    assert found.replay_ms.value == pytest.approx(100.0 + intervals * 3000.0)
    assert found.replay_ms.low == 100.0
    assert found.replay_bound is ReplayBound.BOUNDED
    assert (found.replay_ms.high > 100.0 + 3000.0) is (completed < 1)


def test_a_checkpoint_that_expires_holds_the_next_one_back_if_one_runs_at_a_time():
    alone = replace(ALIGNED, interval_ms=3000.0, timeout_ms=60_000.0)
    costs = [
        cost_in(three_vertices(settings=s), duration_ms=NOW, completed_ratio=exactly(0.5)).replay_ms
        for s in (replace(alone, max_concurrent=20), alone)
    ]

    assert None not in costs
    assert costs[0].value == pytest.approx(100.0 + 1.5 * 3000.0)
    assert costs[1].value > 30_000.0


def test_if_no_checkpoint_completes_what_is_read_again_grows_without_end():
    model = three_vertices(rate_per_s=1000.0)
    found = cost_in(model, duration_ms=NOW, completed_ratio=exactly(0.0))
    kinds = costs_by_kind(model, duration_ms=NOW, completed_ratio=exactly(0.0))

    assert (found.replay_ms, found.catch_up_ms, found.recovery_ms) == (None, None, None)
    assert {k.cost.replay_bound for k in kinds} == {found.replay_bound} == {ReplayBound.ENDLESS}


def test_if_it_is_possible_that_none_completes_the_upper_end_is_no_limit():
    settings = replace(ALIGNED, interval_ms=3000.0, timeout_ms=3000.0)
    found = cost_in(three_vertices(settings=settings), duration_ms=NOW, completed_ratio=Interval(0.5, 0.0, 1.0))

    assert found.replay_ms is not None
    assert found.replay_ms.value == pytest.approx(4600.0)
    assert found.replay_bound is ReplayBound.OPEN


def test_in_flight_data_is_read_before_records_flow():
    model = three_vertices(rate_per_s=1000.0)

    assert outage_ms(model, 12 * 50_000.0).value == outage_ms(model, 0.0).value + 1.0


def test_an_observed_outage_replaces_the_assumed_restart_and_its_reading_of_state():
    model = replace(with_state(three_vertices(rate_per_s=1000.0)), outage_ms=exactly(8000.0))

    assert outage_ms(model, 0.0) == exactly(8000.0)


def test_the_death_of_a_worker_is_noticed_late():
    model = three_vertices(rate_per_s=1000.0)
    seen = replace(model, outage_ms=exactly(8000.0))
    lost = replace(seen, is_outage_of_lost_worker=True)

    assert outage_ms(model, 0.0, Failure.WORKER).value == RESTART_MS.value + LOST_WORKER_MS.value
    assert outage_ms(seen, 0.0, Failure.WORKER).value == 8000.0 + LOST_WORKER_MS.value
    assert outage_ms(lost, 0.0, Failure.WORKER) == outage_ms(lost, 0.0) == exactly(8000.0)
    assert outage_ms(lost, 0.0, Failure.TASK) == RESTART_MS


def test_each_kind_of_failure_has_its_cost_and_says_what_the_outage_is_taken_from():
    model = three_vertices(rate_per_s=1000.0)
    seen = replace(model, outage_ms=exactly(8000.0))
    lost = replace(seen, is_outage_of_lost_worker=True)

    def kinds(one: JobModel) -> list[tuple[Failure, Basis, float]]:
        return [(k.failure, k.basis, k.cost.outage_ms.value) for k in costs_by_kind(one, duration_ms=NOW)]

    late, restart = LOST_WORKER_MS.value, RESTART_MS.value
    assumed, known = Basis.PREDICTED, Basis.RECONSTRUCTED
    assert kinds(model) == [(Failure.TASK, assumed, restart), (Failure.WORKER, assumed, restart + late)]
    assert kinds(seen) == [(Failure.TASK, known, 8000.0), (Failure.WORKER, assumed, 8000.0 + late)]
    assert kinds(lost) == [(Failure.TASK, assumed, restart), (Failure.WORKER, known, 8000.0)]
    words = [k.how for k in costs_by_kind(model, duration_ms=NOW)]
    assert "a restart of 1 to 15 s" in words[0]
    assert "10 to 18 s until the loss is noticed" in words[1]


def test_an_engine_whose_heartbeats_nobody_knows_has_no_cost_of_a_lost_worker_unless_one_is_on_record():
    model = replace(three_vertices(rate_per_s=1000.0), engine=RUNTIME)
    lost = replace(model, outage_ms=exactly(8000.0), is_outage_of_lost_worker=True)

    assert [k.failure for k in costs_by_kind(model, duration_ms=NOW)] == [Failure.TASK]
    assert [k.failure for k in costs_by_kind(lost, duration_ms=NOW)] == [Failure.TASK, Failure.WORKER]


@pytest.mark.parametrize("rate_per_s", [None, 2000.0, 3000.0])
def test_a_job_that_never_catches_up_or_has_no_known_rate_says_so(rate_per_s: float | None):
    found = cost_in(three_vertices(rate_per_s=rate_per_s), duration_ms=NOW)

    assert (found.catch_up_ms, found.recovery_ms) == (None, None)
    assert found.outage_ms.value > 0


@cache
def exact_fit() -> RecoveryModel:
    return fitted(recoveries())


def test_the_fit_finds_the_values_that_made_the_recoveries():
    found = exact_fit()

    assert found.outage_ms.value == pytest.approx(60_000, rel=0.02)
    assert found.replayed_ratio.value == pytest.approx(1.0, rel=0.05)
    assert found.capacity_per_s == pytest.approx(10_000, rel=0.02)
    assert found.checkpoint_cost_ms == 500
    assert (found.basis, found.sample_count) == (Basis.RECONSTRUCTED, 50)
    assert found.error_ratio is not None
    assert found.error_ratio < 0.05


def test_one_wild_recovery_does_not_bend_the_fit():
    plain = recoveries(noise=0.05)
    wild = [*plain[:-1], replace(plain[-1], recovery_ms=20 * plain[-1].recovery_ms)]

    assert fitted(wild).outage_ms.value == pytest.approx(fitted(plain).outage_ms.value, rel=0.05)


def test_predictions_for_an_interval_that_was_left_out_are_as_good_as_the_stated_error():
    seen = recoveries(noise=0.1)
    ratios = [ratio for _, ratio in left_out(seen)]

    assert np.mean(np.abs(np.array(ratios) - 1)) < 0.12
    factor = 1 + (fitted(seen).error_ratio or 0.0)
    assert sum(1 / factor <= r <= factor for r in ratios) >= 0.9 * len(ratios)


def test_the_error_of_the_fit_widens_the_prediction():
    plain = exact_fit()
    wide = replace(plain, error_ratio=0.25)
    one, other = (cost_of_failure(m, interval_ms=30_000.0, rate_per_s=5000.0).recovery_ms for m in (plain, wide))

    assert one is not None
    assert other is not None
    assert other.value == one.value
    assert (other.low, other.high) == (pytest.approx(other.value / 1.25), pytest.approx(other.value * 1.25))


@pytest.mark.parametrize("count", [0, 5])
def test_too_few_recoveries_or_one_interval_are_refused(count: int):
    with pytest.raises(InvalidInputError, match="at least 6"):
        fitted(recoveries()[:count])
    with pytest.raises(InvalidInputError, match="two intervals"):
        fitted(recoveries()[:10])


def test_recoveries_without_a_positive_rate_are_refused():
    seen = recoveries()

    with pytest.raises(InvalidInputError, match="positive"):
        fitted([replace(seen[0], rate_per_s=0.0), *seen[1:]])


def test_two_intervals_can_be_fitted_but_give_no_error():
    assert fitted([r for r in recoveries() if r.interval_ms < 40_000]).error_ratio is None


def model_of(capacity_per_s: float | None = 10_000.0, cost_ms: float = 0.0) -> RecoveryModel:
    return RecoveryModel(
        outage_ms=exactly(10_000.0),
        replayed_ratio=Interval(0.5, 0.0, 1.0),
        capacity_per_s=capacity_per_s,
        checkpoint_cost_ms=cost_ms,
    )


def test_costly_checkpoints_leave_no_time_to_catch_up_at_short_intervals():
    costly = model_of(cost_ms=6000.0)

    assert cost_of_failure(costly, interval_ms=10_000.0, rate_per_s=5000.0).recovery_ms is None
    assert cost_of_failure(costly, interval_ms=60_000.0, rate_per_s=5000.0).recovery_ms is not None


def test_published_recoveries_are_read_and_scored(tmp_path, capsys: pytest.CaptureFixture[str]):
    lines = [
        f"FailureMetrics{{experimentId=50, jobId='iot_{r.interval_ms:.0f}', avgThr={r.rate_per_s}, avgLat=1.0, "
        f"recTime={r.recovery_ms / 1000}}}"
        for r in recoveries()
    ]
    other = "FailureMetrics{experimentId=50, jobId='vehicles', avgThr=308.4, avgLat=340.9, recTime=70.0} (actual: 84)"
    path = tmp_path / "failures.txt"
    path.write_text("\n".join([other, *lines]))

    seen = read(path.read_text())
    assert len(seen) == 50
    assert all(row.error_ratio < 0.02 < row.regression_error_ratio for row in scored(seen))
    assert "50 failures" in report("failures", seen)
    assert main([str(path)]) == 0
    path.write_text(other)
    assert (main([]), main([str(path)])) == (2, 2)
    assert "no line names a job with an interval" in capsys.readouterr().err
