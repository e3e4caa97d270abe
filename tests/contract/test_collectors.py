"""Runs the collector contract on a recorded Flink, the live runtime and a toy engine, and checks what Spark pushes."""

from __future__ import annotations

import pytest

from backend.contracts.spark import SparkPushIn
from backend.contracts.spark_events import job_observation, runs_of
from backend.domain.observation import Observation, PollCost
from collectors.flink import kind as flink_kind
from collectors.flink.kind import FLINK
from collectors.spark import kind as spark_kind
from collectors.spark.kind import SPARK
from tests.contract.collector_contract import CollectorContract, check_observation
from tests.support import toy_collector
from tests.support.collector_targets import Fault, FlinkSource, Row, RuntimeSource, ToySource
from tests.support.recorded_spark import NAMES, push, recorded
from tests.support.spark_history import HistorySource
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.anyio


@pytest.fixture
def timeout_s(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> float:
    """Limit the time that a collector waits for a response, and return this limit in seconds.

    It is half a second for a target that does not respond. For all other faults it is long, because a busy machine may
    respond late.
    """
    limit_s = 0.5 if request.node.callspec.params["fault"] is Fault.SLOW else PATIENCE_S
    monkeypatch.setattr(flink_kind, "_REQUEST_TIMEOUT_S", limit_s)
    monkeypatch.setattr(spark_kind, "_REQUEST_TIMEOUT_S", limit_s)
    monkeypatch.setattr(toy_collector, "TIMEOUT_S", limit_s)
    return limit_s


class TestFlink(CollectorContract):
    kind = FLINK
    source = FlinkSource


class TestRuntime(CollectorContract):
    kind = FLINK
    source = RuntimeSource


class TestSparkHistoryServer(CollectorContract):
    kind = SPARK
    source = HistorySource
    # A history server lists its applications little by little after its start (test_spark_history.py).
    ends_missing_at_once = False


class TestToy(CollectorContract):
    kind = toy_collector.TOY
    source = ToySource


@pytest.mark.parametrize("name", NAMES)
def test_observations_from_spark_pushes_are_valid_and_have_only_what_the_engine_has(name: str) -> None:
    pushed = SparkPushIn.model_validate(push(recorded(name)))
    engine = SPARK.engines[0]

    for run in runs_of(pushed.events):
        job = job_observation(run, pushed, None)
        observation = Observation(Row("spark", "").id, run.observed_at, engine, "4.3.0", (job,), PollCost(0, 0, 0))
        check_observation(observation, SPARK)
        assert all(c.batch is not None for c in job.checkpoints if c.header.end_to_end_duration_ms is not None)


def test_what_a_listener_of_spark_pushes_is_marked_and_what_a_collector_reads_is_not() -> None:
    assert [e.is_pushed for e in SPARK.engines] == [True, False, False, False, False]
    assert len({e.source for e in SPARK.engines}) == len(SPARK.engines)
    assert not any(e.is_pushed for e in FLINK.engines)
