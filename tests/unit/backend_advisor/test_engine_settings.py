"""Tests of the settings that a recommendation changes: each key is one that the engine's version reads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, replace

import pytest

from backend.advisor.advice import Advice, Setting
from backend.advisor.engine_settings import changes_of, how_to
from backend.advisor.exporting import exports_of
from backend.domain import flink_options
from backend.domain.advice import Mode
from backend.domain.engines import RUNTIME, SettingKeys, SettingsFormat, flink
from tests.support.advised_jobs import EXACTLY_ONCE, UNALIGNED, advised, expired_run, persisting, recommended, slow_run
from tests.support.handwritten_jobs import SQL, quick

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


# --- proposed settings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "key", "file"),
    [
        ("1.20.5", "execution.checkpointing.unaligned.enabled", "conf/config.yaml"),
        ("2.3.0", "execution.checkpointing.unaligned.enabled", "conf/config.yaml"),
        ("1.17.2", "execution.checkpointing.unaligned.enabled", "conf/flink-conf.yaml"),
        ("1.16.3", "execution.checkpointing.unaligned", "conf/flink-conf.yaml"),
    ],
)
def test_the_keys_match_the_version_of_the_engine(version, key, file):
    how_to = recommended(advised(slow_run(), version=version)).how_to

    assert how_to.lines == (f"{key}: true", "execution.checkpointing.aligned-checkpoint-timeout: 200 ms")
    assert how_to.rollback_lines == (f"{key}: false", "execution.checkpointing.aligned-checkpoint-timeout: 0 ms")
    assert how_to.file.startswith(file)
    assert how_to.needs_restart
    assert how_to.patch == {}


def test_the_runtime_gets_a_patch_without_a_restart_and_a_rollback_patch():
    how_to = recommended(advised(slow_run(), engine=RUNTIME, version="0.1.0")).how_to

    assert not how_to.needs_restart
    assert how_to.patch["execution.checkpointing.unaligned.enabled"] == "true"
    assert how_to.rollback_patch["execution.checkpointing.unaligned.enabled"] == "false"


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


def test_a_callback_is_told_of_interruptible_timers_only_where_they_exist():
    assert flink("1.19.3").settings.interruptible_timers is None
    assert flink("1.20.5").settings.interruptible_timers is not None
