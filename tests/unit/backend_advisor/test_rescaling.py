"""Tests of how the parallelism of a vertex is changed in each version: by a setting, by a request, or in the code."""

from __future__ import annotations

import pytest

from backend.advisor import rescaling
from backend.advisor.advice import Recommendation, Setting
from backend.advisor.engine_settings import changes_of
from backend.advisor.exporting import exports_of
from backend.domain.advice import Topic
from backend.domain.engines import Rescaling, SettingsFormat, flink
from backend.domain.topology import Vertex
from tests.support.advised_jobs import advised, on, readings, slow_run
from tests.support.handwritten_jobs import LAST, MIDDLE, SQL


def _parallelism(version: str, **more: object) -> Recommendation:
    found = on(Topic.PARALLELISM, advised(slow_run(), readings(held=0.2), version=version, **more))  # type: ignore[arg-type]
    assert isinstance(found, Recommendation), found
    return found


@pytest.mark.parametrize("version", ["1.13.6", "1.16.3", "2.0.0", "2.3.0"])
def test_where_overrides_have_no_effect_no_key_is_advised_but_the_code(version):
    found = _parallelism(version)

    assert found.changes == found.how_to.lines == ()
    assert any("setParallelism(7)" in step for step in found.how_to.steps)
    assert any("jobvertex-parallelism-overrides does not help" in step for step in found.how_to.steps)
    has_request = version.startswith("2.")
    assert any("PUT the whole answer back" in step for step in found.how_to.steps) is has_request
    assert exports_of(flink(version), found.changes) == ()


@pytest.mark.parametrize("version", ["1.13.6", "2.3.0"])
def test_sql_gets_the_parallelism_of_all_its_operators_where_overrides_have_no_effect(version):
    found = _parallelism(version, topology=SQL)

    assert found.how_to.lines == ("table.exec.resource.default-parallelism: 7",)
    assert found.how_to.rollback_lines == ("# remove table.exec.resource.default-parallelism",)
    assert any("all of them get this one" in step for step in found.how_to.steps)
    assert not any("setParallelism" in step for step in found.how_to.steps)


@pytest.mark.parametrize("version", ["1.19.3", "1.20.5"])
def test_since_1_19_a_job_can_override_the_parallelism_by_an_option(version):
    found = _parallelism(version, topology=SQL)

    assert found.how_to.lines == (f"pipeline.jobvertex-parallelism-overrides: {LAST}:7",)
    forms = {e.format for e in exports_of(flink(version), found.changes)}
    assert {SettingsFormat.FLINK_SQL, SettingsFormat.FLINK_OPTIONS} <= forms


@pytest.mark.parametrize("version", ["1.17.2", "1.18.1"])
def test_before_1_19_overrides_are_settings_of_the_cluster_only(version):
    found = _parallelism(version)

    assert found.how_to.lines == (f"pipeline.jobvertex-parallelism-overrides: {LAST}:7",)
    assert "options of a job have no effect; restart the JobManager" in found.how_to.file
    assert any("from the cluster's configuration only" in step for step in found.how_to.steps)
    forms = [e.format for e in exports_of(flink(version), found.changes)]
    assert forms == [SettingsFormat.FLINK_CONF, SettingsFormat.FLINK_DEPLOYMENT]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ((("jobmanager.scheduler", "adaptive"),), "The cluster runs the adaptive scheduler"),
        ((("jobmanager.scheduler", "adaptive"), ("scheduler-mode", "reactive")), "If the cluster runs"),
        ((), "If the cluster runs"),
        (None, "If the cluster runs"),
    ],
)
def test_the_request_is_named_first_and_says_whether_the_scheduler_takes_it(settings, words):
    steps = _parallelism("2.3.0", cluster_settings=settings).how_to.steps

    assert steps[0].startswith(words)


@pytest.mark.parametrize(
    ("names", "is_sql"),
    [
        (("Source: ev[11] -> Calc[12] -> WatermarkAssigner[13] -> Calc[14]",), True),
        (("GroupAggregate(groupBy=[k], select=[k, COUNT(*) AS EXPR$1]) -> Sink",), True),
        (("Source: TableSourceScan(table=[[default_catalog, default_database, ev]], fields=[id])",), True),
        (("Source: main-source", "stage-1", "slow-stage-2 -> Sink: Unnamed"), False),
        (("Source: Join of orders (v2)", "Union[left]"), False),
    ],
)
def test_sql_is_seen_by_the_names_of_its_operators(names, is_sql):
    assert rescaling.is_sql(names) is is_sql


@pytest.mark.parametrize(
    ("version", "rescaling_"),
    [
        ("1.16.3", Rescaling.CODE),
        ("1.17.2", Rescaling.CLUSTER_SETTING),
        ("1.18.1", Rescaling.CLUSTER_SETTING),
        ("1.19.3", Rescaling.JOB_SETTING),
        ("2.0.0", Rescaling.CODE),
    ],
)
def test_the_way_of_rescaling_is_that_of_the_version(version, rescaling_):
    engine = flink(version)

    assert engine.rescaling is rescaling_
    assert engine.has_resource_requirements is (version >= "1.18")
    assert rescaling.changes_of(engine, Vertex(MIDDLE, "m", 4), 8, sql=False) == (
        () if rescaling_ is Rescaling.CODE else changes_of(engine, *_counts(4, 8))
    )


def _counts(before: int, after: int) -> tuple[Setting, Setting]:
    return Setting(parallelism=before, vertex_id=MIDDLE), Setting(parallelism=after, vertex_id=MIDDLE)
