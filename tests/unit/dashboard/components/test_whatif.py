"""The tables of a what-if, with and without predictions and scores."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from backend.contracts.replay_debt import ReplayDebtOut
from backend.contracts.whatif import Measure, MeasureErrorOut, WhatIfIn
from backend.domain.replay_debt import DebtOrigin, ReplayBound
from backend.domain.verdict import Basis
from dashboard import text
from dashboard.components import whatif
from tests.support.dash_calls import texts
from tests.support.made_up_what_ifs import MadeUpWhatIfs

_NONE_ENDED = "no checkpoint ended in the simulated time"


@pytest.fixture(scope="module")
def found():
    made_up = MadeUpWhatIfs(now=lambda: datetime(2026, 11, 21, tzinfo=UTC))
    body = WhatIfIn(settings={"mode": "unaligned"}).model_dump_json().encode()
    return made_up.answer("POST", ["jobs", "jruntime", "whatif"], body)


def test_a_job_without_predicted_costs_has_no_costs_of_the_changed_job(found):
    no_current = found.current.model_copy(update={"failures": []})
    page = whatif.failures(found.model_copy(update={"current": no_current}))

    cost = found.asked.failures[0]
    assert texts(page).count(text.duration(cost.outage_ms.value)) < texts(whatif.failures(found)).count(
        text.duration(cost.outage_ms.value)
    )
    assert text.MISSING in texts(page)
    assert _NONE_ENDED in json.dumps(page, default=lambda c: c.to_plotly_json())


def test_if_no_checkpoint_completes_what_a_failure_reads_again_is_its_debt_and_a_second_more_each_second(found):
    debt = ReplayDebtOut(since=datetime(2026, 11, 29, tzinfo=UTC), origin=DebtOrigin.CHECKPOINT, checkpoint_id=3)
    (cost, *_) = found.asked.failures
    endless = cost.model_copy(update={"replay_ms": None, "replay_bound": ReplayBound.ENDLESS})
    opened = cost.model_copy(update={"replay_bound": ReplayBound.OPEN})
    page = whatif.failures(
        found.model_copy(
            update={
                "replay_debt": debt,
                "replay_debt_ms": 2_100_000.0,
                "current": found.current.model_copy(update={"failures": [endless]}),
                "asked": found.asked.model_copy(update={"failures": [opened]}),
            }
        )
    )

    said = " ".join(texts(page).split())
    assert "A failure now would replay 35 min of input" in said
    assert "35 min and a second more each second" in said
    assert f"{text.duration(cost.replay_ms.low)} or more" in said


def test_without_any_predicted_cost_the_card_says_why(found):
    def said(**changes):
        asked = found.asked.model_copy(update={"failures": [], **changes})
        return texts(whatif.failures(found.model_copy(update={"asked": asked})))

    assert said() == f"Nothing is predicted: {_NONE_ENDED}."
    assert said(problem="the job is too large") == "Nothing is predicted: the job is too large."


def test_a_share_has_its_error_in_points_and_a_measure_that_was_not_scored_says_so(found):
    row = MeasureErrorOut(
        measure="expired_ratio", unit="ratio", measured=0.0, predicted=0.25, sample_count=4, error_ratio=None
    )
    calibration = found.calibration.model_copy(update={"errors": [*found.calibration.errors, row]})

    scored = texts(whatif.predictions(found.model_copy(update={"calibration": calibration})))
    assert "+25 points" in scored
    without = texts(whatif.predictions(found.model_copy(update={"calibration": None})))
    assert "not scored" in without
    assert "the model needs checkpoints after those that it was fitted on; wait for the next ones." in without


def test_each_reason_for_a_missing_error_of_the_model_is_a_sentence(found):
    def said(errors, **changes):
        asked = found.asked.model_copy(update=changes)
        return texts(
            whatif.predictions(
                found.model_copy(
                    update={"asked": asked, "calibration": found.calibration.model_copy(update={"errors": errors})}
                )
            )
        )

    persisted = MeasureErrorOut(
        measure="persisted_bytes", unit="bytes", measured=0.0, predicted=2e6, sample_count=4, error_ratio=None
    )
    first = "Not scored (Persisted in-flight data, median): the measured value is 0"
    assert first in said([*found.calibration.errors, persisted])
    assert "no later checkpoint has a measured value" in said(found.calibration.errors[:1])
    assert "compare the prediction with the next restart" in said(found.calibration.errors, failures=[])


def test_a_throughput_of_counts_is_marked_as_reconstructed(found):
    def throughput(basis):
        rows = [m.model_copy(update={"basis": basis}) if m.measure is Measure.THROUGHPUT else m for m in found.measured]
        said = " ".join(texts(whatif.predictions(found.model_copy(update={"measured": rows}))).split())
        return said.partition(whatif.MEASURES[Measure.THROUGHPUT])[2][:40]

    assert "reconstructed" in throughput(Basis.RECONSTRUCTED)
    assert "reconstructed" not in throughput(Basis.MEASURED)


def test_each_measured_value_has_its_interval(found):
    said = " ".join(texts(whatif.predictions(found)).split())

    assert "3.7 s 3.6 s to 3.8 s" in said
    assert "376 records/s 361 records/s to 392 records/s" in said
    without = found.model_copy(update={"measured": [m.model_copy(update={"low": None}) for m in found.measured]})
    assert "3.7 s no interval is known" in " ".join(texts(whatif.predictions(without)).split())


def test_a_measured_share_of_few_checkpoints_is_their_count(found):
    assert "0 of 8 share: 0 % to 25 %" in " ".join(texts(whatif.predictions(found)).split())

    many = texts(whatif.predictions(found.model_copy(update={"checkpoint_ids": list(range(13, 33))})))
    assert "0 % 0 of 20, 0 % to 25 %" in " ".join(many.split())
    assert "checkpoints 13 to 32" in many
    # A narrow page takes the text of a head as a label, in which a line break leaves no space.
    assert "Measured checkpoints 13 to 32" in many


def test_without_a_change_there_is_no_column_of_the_changed_job(found):
    nothing = found.model_copy(update={"asked": found.asked.model_copy(update={"settings": {}})})

    assert "Changed" in texts(whatif.predictions(found))
    assert "Changed" in texts(whatif.failures(found))
    assert "Changed" not in texts(whatif.predictions(nothing))
    assert "Changed" not in texts(whatif.failures(nothing))
    assert "As it is" in texts(whatif.failures(nothing))
