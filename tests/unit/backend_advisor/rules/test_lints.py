"""Tests of lints: which settings and versions are reported, and what they mean for advice on the mode."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest

from backend.advisor.advice import Advice, Lint
from backend.advisor.rules import lints
from backend.advisor.rules.lints import version_of
from backend.contracts import flink
from backend.domain import flink_options
from backend.domain.advice import LintLevel
from backend.domain.checkpoint import CheckpointConfig
from backend.domain.engines import RUNTIME
from backend.domain.topology import Edge, Topology
from tests.support.advised_jobs import (
    EXACTLY_ONCE,
    UNALIGNED,
    advised,
    expired_run,
    persisting,
    recommended,
    silent,
    slow_run,
)
from tests.support.handwritten_jobs import LAST, MIDDLE, SOURCE, START, chain, completed, detail, quick

RECOVERY = (
    ("execution.checkpointing.during-recovery.enabled", "true"),
    ("execution.checkpointing.unaligned.recover-output-on-downstream.enabled", "true"),
)


def _calm(**more: object) -> Advice:
    return advised([quick(n) for n in range(1, 9)], [], **more)  # type: ignore[arg-type]


def _codes(advice: Advice) -> list[str]:
    return [lint.code for lint in advice.lints]


def _one(advice: Advice, code: str) -> Lint:
    return next(lint for lint in advice.lints if lint.code == code)


@pytest.mark.parametrize(
    ("text", "version"),
    [("1.20.5", (1, 20, 5)), ("2.3", (2, 3, 0)), ("2.0.1-rc1", (2, 0, 1)), ("unknown", None), (None, None)],
)
def test_versions_are_read(text, version):
    assert version_of(text) == version


def _mixed() -> Topology:
    """Return a chain whose middle vertex has a hash and a forward input."""
    plain = chain()
    side = plain.vertices[0].__class__("side", "Source: side", 4)
    return Topology((side, *plain.vertices), (*plain.edges, Edge(side.id, MIDDLE, "FORWARD")))


@pytest.mark.parametrize(
    ("code", "affected", "mended"),
    [
        ("FLINK-37870", ["1.19.2", "1.20.1", "2.0.0"], ["1.19.1", "1.19.3", "1.20.0", "1.20.2", "2.0.1", "2.3.0"]),
        ("FLINK-31963", ["1.15.4", "1.16.1", "1.17.0"], ["1.16.2", "1.17.1", "1.18.0", "2.3.0"]),
        ("FLINK-38483", ["1.20.3", "2.0.0", "2.1.0"], ["1.20.4", "2.0.1", "2.1.1", "2.2.0"]),
    ],
)
def test_an_error_of_the_engine_is_reported_for_the_versions_that_have_it(code, affected, mended):
    for version in affected:
        lint = _one(_calm(config=UNALIGNED, version=version, topology=_mixed()), code)
        assert lint.cure.startswith("Upgrade to ")
        assert lint.source.endswith(code)
    for version in mended:
        assert code not in _codes(_calm(config=UNALIGNED, version=version, topology=_mixed())), version


def test_an_error_is_reported_only_for_jobs_with_the_exchange_that_it_concerns():
    plain = chain()
    custom = replace(plain, edges=tuple(replace(e, ship_strategy="CUSTOM") for e in plain.edges))

    assert "FLINK-35351" in _codes(_calm(config=UNALIGNED, version="1.19.0", topology=custom))
    assert "FLINK-35351" not in _codes(_calm(config=UNALIGNED, version="1.19.0"))
    assert "FLINK-35351" not in _codes(_calm(config=UNALIGNED, version="1.19.1", topology=custom))
    assert "FLINK-38483" not in _codes(_calm(config=UNALIGNED, version="1.20.3"))


def test_an_error_of_unaligned_checkpoints_is_only_a_note_while_checkpoints_are_aligned():
    assert _one(_calm(config=UNALIGNED, version="2.0.0"), "FLINK-37870").level is LintLevel.DANGER
    aligned = _one(_calm(version="2.0.0"), "FLINK-37870")
    assert (aligned.level, "only once unaligned checkpoints are on" in aligned.detail) == (LintLevel.NOTE, True)
    at_least_once = replace(EXACTLY_ONCE, mode="at_least_once")
    assert "FLINK-37870" not in _codes(_calm(version="2.0.0", config=at_least_once))


def test_unaligned_checkpoints_are_not_advised_where_the_version_may_ignore_them():
    refused = silent(advised(slow_run(), version="2.0.0"), "FLINK-37870")

    assert "Upgrade to 2.0.1" in refused.reason
    assert recommended(advised(slow_run(), version="2.0.1"))


def test_advice_to_enable_unaligned_checkpoints_names_the_errors_of_the_version_as_risks():
    # Restores of a smaller parallelism fail in 1.17.0.
    assert any("FLINK-31963" in risk for risk in recommended(advised(slow_run(), version="1.17.0")).risks)
    assert not any("FLINK" in risk for risk in recommended(advised(slow_run(), version="1.20.5")).risks)


def test_a_version_or_engine_that_is_not_known_has_no_errors():
    assert not [c for c in _codes(_calm(config=UNALIGNED, version=None)) if c.startswith("FLINK")]
    assert not [c for c in _codes(_calm(config=UNALIGNED, version="1.17.0", engine=RUNTIME)) if c.startswith("FLINK")]


def test_not_tolerating_a_failed_checkpoint_is_worse_once_one_has_failed():
    zero = replace(EXACTLY_ONCE, tolerable_failed_count=0)

    assert _one(_calm(config=zero), "tolerable-0").level is LintLevel.WARNING
    failing = _one(advised(expired_run(), config=zero), "tolerable-0")
    assert failing.level is LintLevel.DANGER
    assert "8 of the last 8 checkpoints failed" in failing.detail
    assert "tolerable-0" not in _codes(_calm(config=replace(zero, tolerable_failed_count=1)))
    assert "tolerable-0" not in _codes(_calm(config=replace(zero, tolerable_failed_count=None)))


@pytest.mark.parametrize(
    ("tolerated", "run", "is_reported"),
    [
        (3, [quick(1), *expired_run()[1:4]], True),
        (3, [quick(1), *expired_run()[1:3]], False),
        (3, [*expired_run()[:3], quick(4)], False),
        (1, [quick(1), *expired_run()[1:2]], True),
        # Zero has a lint of its own, and without a limit none restarts the job.
        (0, expired_run(), False),
        (2**31 - 1, expired_run(), False),
        (None, expired_run(), False),
    ],
)
def test_a_job_that_one_more_expired_checkpoint_restarts_is_reported(tolerated, run, is_reported):
    advice = advised(run, config=replace(EXACTLY_ONCE, tolerable_failed_count=tolerated))

    assert ("tolerance-used-up" in _codes(advice)) is is_reported
    if is_reported:
        found = _one(advice, "tolerance-used-up")
        assert found.level is LintLevel.DANGER
        assert "expired, and " in found.detail


def test_failures_before_a_restart_do_not_count_to_the_tolerated_ones():
    config = replace(EXACTLY_ONCE, tolerable_failed_count=3)
    run = expired_run(4)
    at = run[2].header.triggered_at

    assert "tolerance-used-up" in _codes(advised(run, config=config))
    assert "tolerance-used-up" not in _codes(advised(run, config=config, exceptions=((at, "lost"),)))


def test_unaligned_checkpoints_that_the_mode_leaves_off_are_reported():
    code, loose = "unaligned-needs-exactly-once", replace(EXACTLY_ONCE, mode="at_least_once")
    on = (("execution.checkpointing.unaligned.enabled", "true"),)

    assert code in _codes(_calm(config=loose, cluster_settings=on, version="1.20.5"))
    assert code in _codes(
        _calm(config=loose, cluster_settings=(("execution.checkpointing.unaligned", "true"),), version="1.13.6")
    )
    assert code not in _codes(_calm(config=EXACTLY_ONCE, cluster_settings=on, version="1.20.5"))
    assert code not in _codes(_calm(config=loose, cluster_settings=(), version="1.20.5"))


def test_a_timeout_below_the_interval_is_reported():
    short = replace(EXACTLY_ONCE, interval_ms=60_000, timeout_ms=30_000)

    assert "The checkpoint timeout of 30" in _one(_calm(config=short), "timeout-below-interval").headline
    assert "timeout-below-interval" not in _codes(_calm(config=replace(short, timeout_ms=60_000)))


def test_a_minimum_pause_above_the_interval_is_reported_because_it_decides():
    paused = replace(EXACTLY_ONCE, interval_ms=5_000, min_pause_ms=30_000)
    apart = [completed(n, detail(LAST, first=[10] * 4), every_s=30.1) for n in range(1, 9)]
    found = _one(advised(apart, [], config=paused), "min-pause-decides")

    assert "The minimum pause of 30" in found.headline
    assert "one begins every 30" in found.detail
    assert "min-pause-decides" not in _codes(_calm(config=replace(paused, min_pause_ms=5_000)))
    assert "min-pause-decides" not in _codes(_calm(config=replace(paused, min_pause_ms=None)))


def test_unaligned_checkpoints_with_several_at_a_time_are_reported():
    two = replace(UNALIGNED, max_concurrent=2)

    assert "unaligned-concurrent" in _codes(_calm(config=two))
    assert "unaligned-concurrent" not in _codes(_calm(config=replace(two, is_unaligned_enabled=False)))


@pytest.mark.parametrize(
    ("settings", "is_reported"),
    [
        (None, False),
        ((), True),
        ((("execution.checkpointing.num-retained", "1"),), True),
        ((("state.checkpoints.num-retained", "2"),), False),
        ((("execution.checkpointing.num-retained", "3"),), False),
    ],
)
def test_a_single_retained_checkpoint_is_reported_if_the_settings_of_the_cluster_are_known(settings, is_reported):
    found = _calm(cluster_settings=settings)

    assert ("retained-1" in _codes(found)) is is_reported


@pytest.mark.parametrize(("version", "is_reported"), [("1.20.5", False), ("2.0.0", True), (None, False)])
def test_settings_of_buffers_that_flink_2_ignores_are_reported(version, is_reported):
    settings = (("taskmanager.network.memory.buffers-per-channel", "1"),)

    assert ("ignored-buffers" in _codes(_calm(cluster_settings=settings, version=version))) is is_reported


@pytest.mark.parametrize(
    ("config", "version", "settings", "is_reported"),
    [
        (EXACTLY_ONCE, "2.3.0", RECOVERY, True),
        (UNALIGNED, "2.3.0", RECOVERY, False),
        (EXACTLY_ONCE, "2.3.0", RECOVERY[:1], False),
        (EXACTLY_ONCE, "2.2.1", RECOVERY, False),
        (EXACTLY_ONCE, "2.4.0", RECOVERY, False),
    ],
)
def test_checkpoints_during_recovery_need_unaligned_checkpoints(config, version, settings, is_reported):
    found = _codes(_calm(config=config, version=version, cluster_settings=settings))

    assert ("FLINK-40518" in found) is is_reported


@pytest.mark.parametrize(("version", "cure"), [("2.3.0", "to true"), ("1.20.5", "debloating")])
def test_much_in_flight_data_makes_a_restore_long(version, cure):
    large = [persisting(c, 32 << 20) for c in slow_run()]
    small = [persisting(c, 1 << 20) for c in slow_run()]

    assert cure in _one(advised(large, config=UNALIGNED, version=version), "FLIP-547").cure
    assert "FLIP-547" not in _codes(advised(small, config=UNALIGNED, version=version))
    on = advised(large, config=UNALIGNED, version="2.3.0", cluster_settings=RECOVERY)
    assert "FLIP-547" not in _codes(on)


def test_a_stuck_sync_part_is_reported():
    def run(sync_ms: int, version: str = "1.20.5") -> Advice:
        rows = [
            completed(
                n,
                detail(SOURCE, first=[5] * 4),
                detail(MIDDLE, first=[10] * 4),
                detail(LAST, first=[15] * 4, sync=[sync_ms, 1, 1, 1]),
            )
            for n in range(1, 9)
        ]
        return advised(rows, [], config=EXACTLY_ONCE, version=version)

    assert "FLINK-40200" in _codes(run(40_000))
    assert "FLINK-40200" not in _codes(run(3_000))
    assert "FLINK-40200" in _codes(run(40_000, "2.3.0"))
    assert "FLINK-40200" not in _codes(run(40_000, "2.4.0"))


def _writing(took_ms: int, async_ms: int, concurrent: int) -> Advice:
    row = [detail(v, first=[took_ms - async_ms] * 4, async_=async_ms) for v in (SOURCE, MIDDLE, LAST)]
    config = replace(EXACTLY_ONCE, max_concurrent=concurrent)
    return advised([completed(n, *row) for n in range(1, 9)], [], config=config)


def test_checkpoints_that_write_at_the_same_time_are_reported():
    assert "concurrent-writes" in _codes(_writing(6_000, 4_000, 2))
    # They end before the next one begins, they hardly write, or only one may run.
    for calm in (_writing(4_900, 4_000, 2), _writing(6_000, 2_000, 2), _writing(6_000, 4_000, 1)):
        assert "concurrent-writes" not in _codes(calm)


@pytest.mark.parametrize(
    ("suffix", "value", "is_reported"), [("", "false", True), (".enabled", "False", True), ("", "true", False)]
)
def test_checkpoints_that_end_with_the_first_finished_task_are_reported(suffix, value, is_reported):
    settings = ((f"execution.checkpointing.checkpoints-after-tasks-finish{suffix}", value),)

    assert ("no-checkpoints-after-finish" in _codes(_calm(cluster_settings=settings))) is is_reported


def test_settings_of_the_job_that_end_checkpoints_with_the_first_finished_task_are_reported():
    (lint,) = [
        x
        for x in _calm(config=replace(EXACTLY_ONCE, ends_with_first_task=True)).lints
        if x.code == "no-checkpoints-after-finish"
    ]
    assert "execution.checkpointing.checkpoints-after-tasks-finish" in lint.cure


OFF = CheckpointConfig(timeout_ms=600_000, tolerable_failed_count=0, is_off=True)


def test_a_streaming_job_without_checkpoints_gets_one_lint_and_no_other_advice():
    found = advised([], [], config=OFF)

    assert _codes(found) == ["checkpointing-off"]
    assert {s.reason for s in found.silences} == {"checkpointing is off"}
    assert not found.recommendations


def test_a_job_in_batch_mode_needs_no_checkpoints():
    assert _codes(advised([], [], config=OFF, topology=replace(chain(), is_batch=True))) == []


def test_every_lint_says_what_to_do_and_names_a_page_about_it():
    large = [persisting(c, 32 << 20) for c in slow_run()]
    many = replace(UNALIGNED, max_concurrent=2, tolerable_failed_count=0, interval_ms=60_000, timeout_ms=30_000)
    buffers = (("taskmanager.network.memory.buffers-per-channel", "1"),)
    found = {
        lint.code: lint
        for advice in (
            advised(large, config=many, version="2.0.0", topology=_mixed(), cluster_settings=buffers),
            _calm(version="2.3.0", cluster_settings=RECOVERY),
            _writing(6_000, 4_000, 2),
        )
        for lint in advice.lints
    }

    assert len(found) >= 9
    for lint in found.values():
        assert lint.cure
        assert lint.source.startswith(
            ("https://issues.apache.org/", "https://nightlies.apache.org/flink/", "https://cwiki.apache.org/")
        ), lint
        assert not lint.code.startswith(("FLINK-", "FLIP-")) or lint.code in lint.source


def test_the_collector_stores_every_setting_of_the_cluster_that_a_lint_reads():
    assert set().union(*map(flink_options.names_of, lints.OPTIONS)) <= flink.CLUSTER_KEYS


@pytest.mark.parametrize(
    ("version", "key", "cure"),
    [
        ("1.15.4", "execution.checkpointing.num-retained", "Set state.checkpoints.num-retained instead"),
        ("1.20.5", "execution.checkpointing.during-recovery.enabled", "Remove execution.checkpointing.during-recovery"),
    ],
)
def test_a_setting_of_another_version_is_reported_with_the_one_of_this_version(version, key, cure):
    found = _one(_calm(version=version, cluster_settings=((key, "3"),)), "unread-setting")

    assert found.headline == f"{key} has no effect"
    assert cure in found.cure
    # What has no effect is no value either.
    assert "retained-1" in _codes(_calm(version=version, cluster_settings=((key, "3"),)))


@pytest.mark.parametrize(
    ("version", "key"),
    [
        ("1.15.4", "state.checkpoints.num-retained"),
        ("1.20.5", "state.checkpoints.num-retained"),
        ("1.20.5", "execution.checkpointing.num-retained"),
    ],
)
def test_the_number_of_retained_checkpoints_is_read_under_each_name_that_the_version_reads(version, key):
    found = _codes(_calm(version=version, cluster_settings=((key, "3"),)))

    assert "retained-1" not in found
    assert "unread-setting" not in found


def test_the_cure_names_the_key_of_the_version():
    def cure(version: str) -> str:
        return _one(_calm(version=version, cluster_settings=()), "retained-1").cure

    assert cure("1.19.3").startswith("Set state.checkpoints.num-retained to 2")
    assert cure("1.20.5").startswith("Set execution.checkpointing.num-retained to 2")


@pytest.mark.parametrize(("version", "cure"), [("1.14.6", "Set "), ("1.15.4", "Remove ")])
def test_checkpoints_after_a_task_has_finished_are_off_by_default_in_1_14(version, cure):
    key = "execution.checkpointing.checkpoints-after-tasks-finish.enabled"
    found = _one(_calm(version=version, cluster_settings=((key, "false"),)), "no-checkpoints-after-finish")

    assert found.cure.startswith(f"{cure}{key}")


def test_the_most_serious_lints_come_first():
    config: CheckpointConfig = replace(UNALIGNED, tolerable_failed_count=0, timeout_ms=1_000)
    levels = [lint.level for lint in advised(expired_run(), config=config, version="2.0.0", cluster_settings=()).lints]

    order = list(LintLevel)
    assert len(levels) >= 3
    assert all(order.index(a) <= order.index(b) for a, b in pairwise(levels))


def test_state_that_each_restart_multiplies_is_reported_with_its_sizes_and_what_to_look_at():
    rows, number = [], 0
    for size in (30_000, 120_000, 480_000):
        for _ in range(3):
            number += 1
            rows.append(completed(number, *(detail(v, first=[5] * 4, size_bytes=size) for v in (MIDDLE, LAST))))
    restarts = tuple((START + timedelta(seconds=5 * n + 2), "java.lang.Exception: lost") for n in (3, 6))
    found = _one(advised(rows, [], exceptions=restarts), "state-multiplies")

    assert found.headline == "The state of last is 4.0 times as large after each restart"
    assert "120 kB, 480 kB, 1.9 MB of state before, between and after the last 2 restarts" in found.detail
    assert "about the number of its subtasks (4)" in found.detail
    assert "state-multiplies" not in _codes(advised(rows, [], exceptions=restarts[:1]))
    once = _one(advised(rows[3:], [], exceptions=restarts[1:]), "state-multiplies")
    assert (once.level, once.headline) == (LintLevel.WARNING, "The state of last may multiply with each restart")
    assert "480 kB before the last restart and 1.9 MB after it, 4.0 times as much" in once.detail
    assert "The size after the next restart decides." in once.detail
