"""Tests of R-ST: when incremental checkpoints or a changelog are advised."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.advisor.advice import NoAdvice, Recommendation
from backend.domain.advice import Metric, Topic
from backend.domain.engines import RUNTIME
from tests.support.advised_jobs import EXACTLY_ONCE, advised, expected, on, readings
from tests.support.handwritten_jobs import LAST, MIDDLE, SOURCE, completed, detail

ROCKS = replace(EXACTLY_ONCE, state_backend="EmbeddedRocksDBStateBackend")
HEAP = replace(EXACTLY_ONCE, state_backend="HashMapStateBackend")
MB = 1_000_000


def writing(async_ms, *, written=400 * MB, full=400 * MB, count=8, sync_ms=10):
    """Return checkpoints in which the last vertex writes ``written`` bytes of its ``full`` bytes of state."""
    found = []
    for n in range(1, count + 1):
        own = async_ms[n - 1] if isinstance(async_ms, list) else async_ms
        size = written[n - 1] if isinstance(written, list) else written
        rows = (
            detail(SOURCE, first=[5] * 4),
            detail(MIDDLE, first=[10] * 4),
            detail(LAST, first=[15] * 4, sync=sync_ms, async_=own),
        )
        one = completed(n, *rows)
        header = replace(one.header, checkpointed_size_bytes=size, full_state_size_bytes=full, persisted_bytes=0)
        found.append(replace(one, header=header))
    return found


def state_of(advice):
    return on(Topic.STATE, advice)


QUIET = readings(held=0.0, busy=0.3, queued_bytes=0)


def test_r_st_1_proposes_incremental_checkpoints_on_rocksdb():
    """4 subtasks read 250 kB/s each: 5 MB in an interval of 5 s, of 400 MB of state."""
    found = state_of(advised(writing(3_000), QUIET, config=ROCKS))

    assert isinstance(found, Recommendation), found
    assert found.how_to.lines == ("execution.checkpointing.incremental: true",)
    written = expected(found, Metric.WRITTEN)
    assert (written.predicted.value, written.predicted.high) == (pytest.approx(5 * MB, rel=0.01), 400 * MB)
    assert expected(found, Metric.DURATION).predicted.value < 200
    assert found.preconditions[0].is_met


def test_r_st_1_counts_the_input_until_the_next_checkpoint_which_a_minimum_pause_delays():
    """1 MB/s arrive, in 3 s of a checkpoint and 57 s of pause."""
    found = state_of(advised(writing(3_000), QUIET, config=replace(ROCKS, min_pause_ms=57_000)))

    assert expected(found, Metric.WRITTEN).predicted.value == pytest.approx(60 * MB, rel=0.01)


def test_r_st_1_moves_a_job_from_the_heap_to_rocksdb_and_says_how():
    found = state_of(advised(writing(3_000), QUIET, config=HEAP, version="1.18.1"))

    assert found.how_to.lines == ("state.backend.type: rocksdb", "state.backend.incremental: true")
    assert any("canonical savepoint" in p.text for p in found.preconditions)


@pytest.mark.parametrize(("rate", "speaks"), [(9_900_000, True), (10_100_000, False)])
def test_r_st_1_needs_that_less_than_half_of_the_state_can_change(rate, speaks):
    quiet = readings(held=0.0, busy=0.3, queued_bytes=0, rate_bytes_per_s=rate)
    found = state_of(advised(writing(3_000), quiet, config=ROCKS))
    assert isinstance(found, Recommendation) is speaks, found


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (writing(500), "it matters little"),
        (writing(1_200, sync_ms=1_300), "fewer bytes would change little"),
        (writing(3_000, written=100 * MB), "no long tail"),
        (writing(3_000, full=None), "not known"),
    ],
)
def test_r_st_1_gives_the_reason_for_no_change(run, words):
    found = state_of(advised(run, QUIET, config=ROCKS))
    assert isinstance(found, NoAdvice), found
    assert words in found.reason


def test_r_st_1_proposes_a_changelog_if_compaction_makes_a_tail():
    async_ms, written = [1_000] * 7 + [9_000], [10 * MB] * 7 + [200 * MB]
    found = state_of(advised(writing(async_ms, written=written), QUIET, config=ROCKS))

    assert isinstance(found, Recommendation), found
    assert found.how_to.lines == ("state.changelog.enabled: true", "state.changelog.storage: filesystem")
    assert any("state.changelog.dstl.dfs.base-path names a directory" in p.text for p in found.preconditions)
    assert found.unpredicted[0].startswith("no prediction of durations")
    same = state_of(advised(writing(async_ms, written=10 * MB), QUIET, config=ROCKS))
    assert "no long tail" in same.reason


@pytest.mark.parametrize(
    ("version", "key"), [("1.15.4", "dstl.dfs.base-path"), ("2.3.0", "state.changelog.dstl.dfs.base-path")]
)
def test_the_changelog_is_kept_next_to_the_checkpoints_if_their_path_is_known(version, key):
    async_ms, written = [1_000] * 7 + [9_000], [10 * MB] * 7 + [200 * MB]
    run = [
        replace(c, header=replace(c.header, external_path=f"s3://bucket/ck/0a1b/chk-{c.header.checkpoint_id}"))
        for c in writing(async_ms, written=written)
    ]
    found = state_of(advised(run, QUIET, config=ROCKS, version=version))

    assert found.how_to.lines[-1] == f"{key}: s3://bucket/ck/changelog"
    assert "restart every task manager" in found.how_to.file


def test_r_st_2_names_the_backends_of_an_engine_that_cannot_change_them_while_it_runs():
    found = state_of(advised(writing(3_000), QUIET, config=HEAP, engine=RUNTIME))

    assert (found.rule, isinstance(found, NoAdvice)) == ("R-ST-2", True)
    assert "changelog" in found.reason


def test_the_runtime_takes_incremental_checkpoints_while_it_runs_if_its_backend_has_them():
    found = state_of(advised(writing(3_000), QUIET, config=replace(EXACTLY_ONCE, state_backend="sst"), engine=RUNTIME))
    assert dict(found.how_to.patch) == {"execution.checkpointing.incremental": "true"}
