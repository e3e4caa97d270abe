"""Tests of the table of version faults: each is reported for its versions and settings, and for no others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.advisor.advice import Advice
from backend.advisor.rules import version_faults
from backend.domain.advice import LintLevel
from backend.domain.checkpoint import CheckpointConfig
from backend.domain.topology import Topology
from tests.support.advised_jobs import EXACTLY_ONCE, UNALIGNED, advised, silent, slow_run, with_timeout
from tests.support.handwritten_jobs import chain, quick

ROCKSDB = replace(EXACTLY_ONCE, state_backend="EmbeddedRocksDBStateBackend")
PAUSED = replace(EXACTLY_ONCE, min_pause_ms=1_000)
HASH = chain()
BROADCAST = chain(ship="BROADCAST")
Settings = tuple[tuple[str, str], ...]
SPINNING: Settings = (("state.backend.rocksdb.predefined-options", "SPINNING_DISK_OPTIMIZED_HIGH_MEM"),)


def _buffers(count: int, merged: int) -> Settings:
    prefix = "state.backend.rocksdb.writebuffer."
    return ((f"{prefix}count", str(count)), (f"{prefix}number-to-merge", str(merged)))


def _codes(
    version: str, config: CheckpointConfig, topology: Topology = HASH, settings: Settings | None = None
) -> list[str]:
    calm = [quick(n) for n in range(1, 9)]
    found = advised(calm, [], config=config, version=version, topology=topology, cluster_settings=settings)
    return [lint.code for lint in found.lints]


@pytest.mark.parametrize(
    ("code", "affected", "mended", "config", "topology", "settings"),
    [
        ("FLINK-20645", ["1.12.0", "1.12.1"], ["1.11.3", "1.12.2", "1.13.0"], UNALIGNED, HASH, None),
        (
            "FLINK-22815",
            ["1.11.3", "1.12.4", "1.13.0", "1.13.1"],
            ["1.11.4", "1.12.5", "1.13.2", "1.14.0"],
            UNALIGNED,
            BROADCAST,
            None,
        ),
        ("FLINK-27251", ["1.13.0", "1.15.4"], ["1.16.0", "2.0.0"], with_timeout(200), HASH, None),
        ("FLINK-31588", ["1.16.1", "1.17.0"], ["1.15.4", "1.16.2", "1.17.1"], with_timeout(200), HASH, None),
        ("FLINK-21726", ["1.11.0", "1.13.6"], ["1.14.0", "1.20.5"], ROCKSDB, HASH, SPINNING),
        ("FLINK-18856", ["1.11.0", "1.11.1"], ["1.10.3", "1.11.2", "1.12.0"], PAUSED, HASH, None),
    ],
)
def test_a_fault_is_reported_for_the_versions_that_have_it(code, affected, mended, config, topology, settings):
    for version in affected:
        assert code in _codes(version, config, topology, settings), version
    for version in mended:
        assert code not in _codes(version, config, topology, settings), version


@pytest.mark.parametrize(
    ("code", "version", "config", "topology", "settings"),
    [
        ("FLINK-20645", "1.12.0", EXACTLY_ONCE, HASH, None),
        ("FLINK-20645", "1.12.0", replace(UNALIGNED, mode="at_least_once"), HASH, None),
        ("FLINK-22815", "1.12.3", EXACTLY_ONCE, BROADCAST, None),
        ("FLINK-22815", "1.12.3", UNALIGNED, HASH, None),
        ("FLINK-27251", "1.15.4", EXACTLY_ONCE, HASH, None),
        ("FLINK-27251", "1.15.4", UNALIGNED, HASH, None),
        ("FLINK-31588", "1.16.1", UNALIGNED, HASH, None),
        ("FLINK-21726", "1.13.6", ROCKSDB, HASH, None),
        ("FLINK-21726", "1.13.6", ROCKSDB, HASH, (*SPINNING, *_buffers(4, 2))),
        ("FLINK-21726", "1.13.6", replace(ROCKSDB, state_backend="HashMapStateBackend"), HASH, SPINNING),
        ("FLINK-21726", "1.13.6", EXACTLY_ONCE, HASH, SPINNING),
        ("FLINK-18856", "1.11.1", EXACTLY_ONCE, HASH, None),
        ("FLINK-18856", "1.11.1", replace(PAUSED, min_pause_ms=0), HASH, None),
    ],
)
def test_a_fault_is_not_reported_for_settings_and_graphs_that_it_does_not_concern(
    code, version, config, topology, settings
):
    assert code not in _codes(version, config, topology, settings)


@pytest.mark.parametrize(
    ("count", "merged", "can_hang"), [(4, 3, True), (6, 5, True), (6, 4, False), (3, 2, False), (2, 1, False)]
)
def test_rocksdb_can_hang_only_if_it_merges_all_but_one_of_more_than_three_buffers(count, merged, can_hang):
    assert ("FLINK-21726" in _codes("1.13.6", ROCKSDB, HASH, _buffers(count, merged))) is can_hang


def _slow(version: str) -> Advice:
    return advised(slow_run(), version=version)


def test_unaligned_checkpoints_are_not_advised_where_they_can_be_corrupt():
    refused = silent(_slow("1.12.1"), "FLINK-20645")

    assert refused.reason.startswith("in Flink 1.12.1, unaligned checkpoints are not safe: an unaligned checkpoint")
    assert refused.reason.endswith("Upgrade to 1.12.2 or later first")


def test_the_mode_is_judged_as_ever_in_the_version_without_the_fault():
    assert not any(s.rule == "FLINK-20645" for s in _slow("1.12.2").silences)


def test_every_fault_names_versions_in_order_and_a_cure_that_it_has_not():
    for fault in version_faults.FAULTS:
        assert all(first < mended for first, mended in fault.ranges), fault.code
        assert list(fault.ranges) == sorted(fault.ranges), fault.code
        assert all(fault.mended_in(mended) is None for _, mended in fault.ranges), fault.code
    codes = [fault.code for fault in version_faults.FAULTS]
    assert len(codes) == len(set(codes))


def test_a_fault_that_can_corrupt_a_checkpoint_is_a_danger_and_says_what_helps_without_an_upgrade():
    calm = [quick(n) for n in range(1, 9)]
    found = advised(calm, [], config=UNALIGNED, version="1.12.0")

    (lint,) = [x for x in found.lints if x.code == "FLINK-20645"]
    assert lint.level is LintLevel.DANGER
    assert lint.cure == "Upgrade to 1.12.2 or later. Until then, turn unaligned checkpoints off."
