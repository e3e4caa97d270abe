"""Tests that each key that is advised exists in the version of the engine, under the name that it has there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, replace

import pytest

from backend.advisor import rescaling
from backend.advisor.advice import Advice, Recommendation, Setting
from backend.advisor.engine_settings import changes_of, how_to
from backend.advisor.exporting import exports_of
from backend.domain import flink_options
from backend.domain.advice import Mode, Topic
from backend.domain.engines import Rescaling, SettingKeys, SettingsFormat, flink
from backend.domain.topology import Topology, Vertex
from tests.support.advised_jobs import EXACTLY_ONCE, UNALIGNED, advised, expired_run, on, persisting, readings, slow_run
from tests.support.handwritten_jobs import LAST, MIDDLE, chain, quick

VERSIONS = tuple(f"{a}.{b}.0" for a, b in flink_options.releases())
EVERYTHING = Setting(
    mode=Mode.ALIGNED_WITH_TIMEOUT,
    aligned_timeout_ms=500,
    debloat_target_ms=500,
    debloat_period_ms=100,
    floating_buffer_count=16,
    interval_ms=5_000,
    min_pause_ms=500,
    timeout_ms=60_000,
    tolerable_failed_count=3,
    retained_count=2,
    state_backend="rocksdb",
    is_incremental=True,
    has_changelog=True,
    changelog_directory="file:/checkpoints/changelog",
    parallelism=8,
    vertex_id="v",
    max_concurrent=1,
    is_unaligned_forced=True,
)
# What another engine has.
_OTHERS = {"inflight_cap_bytes", "batch_offset_count", "batch_file_count", "is_uncapped", "is_debloat_off"}
_KEY = re.compile(
    r"\b(?:execution|state|taskmanager|pipeline|table|jobmanager|dstl|restart-strategy)\.[a-z0-9.-]*[a-z0-9]"
)
SQL = Topology(
    tuple(
        replace(v, name=n)
        for v, n in zip(chain().vertices, ("Source: ev[1]", "GroupAggregate[6]", "bh[8]: Writer"), strict=True)
    ),
    chain().edges,
)


def is_read(key: str, version: str) -> bool:
    """Return whether a version reads a key, under its own name."""
    major, minor = version.split(".")[:2]
    found = flink_options.option(key, (int(major), int(minor)))
    return found is not None and found.key == key


def test_the_proposal_of_these_tests_has_every_setting_that_a_rule_can_propose_for_flink():
    unset = {f.name for f in fields(Setting) if getattr(EVERYTHING, f.name) in (None, False)}

    assert unset == _OTHERS


@pytest.mark.parametrize("version", VERSIONS)
def test_every_key_that_can_be_advised_is_read_by_that_version_under_its_own_name(version):
    engine = flink(version)
    keys = [c.key for c in changes_of(engine, Setting(mode=Mode.ALIGNED), EVERYTHING)]
    own = [key for f in fields(SettingKeys) if (key := getattr(engine.settings, f.name)) is not None]

    assert len(keys) >= 11
    assert [key for key in (*keys, *own) if not is_read(key, version)] == []
    assert engine.settings_release is None


def _texts(advice: Advice) -> Iterator[str]:
    for found in advice.recommendations:
        yield from (found.headline, found.reason, found.how_to.file, *found.risks, *found.withdrawn_if)
        yield from (p.text for p in found.preconditions)
        yield from (*found.how_to.lines, *found.how_to.rollback_lines)
        # These sentences name keys that do not help, and say so.
        yield from (step for step in found.how_to.steps if "does not help" not in step)
    yield from (silence.reason for silence in advice.silences)
    yield from (lint.cure for lint in advice.lints)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_key_in_a_sentence_of_advice_is_read_by_that_version(version):
    large = [persisting(c, 32 << 20) for c in slow_run()]
    given = [
        advised(slow_run(), version=version, cluster_settings=()),
        advised(slow_run(), version=version, topology=SQL),
        advised(slow_run(), version=version, config=replace(EXACTLY_ONCE, max_concurrent=3, tolerable_failed_count=0)),
        advised(expired_run(), version=version),
        advised(large, config=UNALIGNED, version=version),
        advised([quick(n) for n in range(1, 9)], [], version=version, cluster_settings=()),
    ]
    named = {key for advice in given for text in _texts(advice) for key in _KEY.findall(text)}

    assert len(named) >= 3
    assert [key for key in sorted(named) if not is_read(key, version)] == []


# --- parallelism ----------------------------------------------------------------------------------------------------


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


# --- other settings -------------------------------------------------------------------------------------------------


def test_settings_that_only_the_clusters_processes_read_are_no_options_of_a_job():
    engine = flink("1.18.1")
    changes = changes_of(
        engine, Setting(), Setting(has_changelog=True, changelog_directory="s3://b/c", retained_count=2)
    )
    told = how_to(engine, changes)

    assert told.lines == (
        "state.backend.changelog.enabled: true",
        "state.checkpoints.num-retained: 2",
        "state.backend.changelog.storage: filesystem",
        "dstl.dfs.base-path: s3://b/c",
    )
    assert "restart the JobManager and every task manager" in told.file
    assert "state.backend.changelog.enabled can be -D options" in told.file
    (sql,) = [e for e in exports_of(engine, changes) if e.format is SettingsFormat.FLINK_SQL]
    assert sql.text == "SET 'state.backend.changelog.enabled' = 'true';"
    assert "not for state.checkpoints.num-retained" in sql.where


@pytest.mark.parametrize(("version", "has_changelog"), [("1.14.6", False), ("1.15.4", True)])
def test_a_changelog_needs_a_release_that_keeps_it(version, has_changelog):
    assert (flink(version).settings.changelog is not None) is has_changelog


@pytest.mark.parametrize(
    ("version", "words"),
    [(None, "the keys of Flink 2.3"), ("2.4.0", "the keys of Flink 2.3"), ("2.3.0", None), ("1.15.2", None)],
)
def test_keys_that_are_not_known_for_the_version_say_of_which_release_they_are(version, words):
    engine = flink(version)
    told = how_to(engine, changes_of(engine, Setting(), Setting(interval_ms=1_000)))

    assert (words or "") in told.file
    assert ("are not known" in told.file) is (words is not None)


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


def test_a_callback_is_told_of_interruptible_timers_only_where_they_exist():
    assert flink("1.19.3").settings.interruptible_timers is None
    assert flink("1.20.5").settings.interruptible_timers is not None
