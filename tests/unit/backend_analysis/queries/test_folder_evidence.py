"""What a checkpoint folder adds to the verdict on its query: rows of evidence, and no cause."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from backend.analysis.queries import verdict_micro_batch
from backend.analysis.queries.folder_evidence import FILES_MIN_COUNT, SKEW_MIN_BYTES
from backend.analysis.words import sentences as say
from backend.domain.checkpoint_files import CheckpointFiles, FolderBatch, OperatorFiles, PartitionFiles
from tests.support.made_up_queries import QUERY_ID, ended, events, evidence_of, progress

MB = 1_000_000
READ_AT = datetime(2026, 11, 21, 11, 3, 40, tzinfo=UTC)
READ = " (folder read at 2026-11-21 11:03 UTC)"
WELL = evidence_of(events([progress(n, took_ms=900) for n in range(30)], every_ms=3_000), interval_ms=3_000)


def folder(**more) -> CheckpointFiles:
    made = CheckpointFiles(
        query_id=QUERY_ID,
        offsets_count=30,
        commits_count=29,
        batches=(FolderBatch(29, is_committed=False),),
        watermark_at=None,
        file_count=400,
        small_count=390,
        small_bytes=100_000,
        size_bytes=MB,
        checksum_count=0,
        temporary_count=0,
        is_cut=False,
    )
    return replace(made, **more)


def operator(largest_bytes: int, median_bytes: int | None = 2 * MB, lag: int | None = 3) -> OperatorFiles:
    part = PartitionFiles(3, largest_bytes, 4, 4, 0)
    return OperatorFiles(
        0, "stateStoreSave", 8, 32, 90 * MB, 30, 2, median_bytes=median_bytes, snapshot_lag=lag, partitions=(part,)
    )


def added(evidence, *folders):
    """Return the statements that the folders add, without the time. The rest of the verdict must stay."""
    return [statement.removesuffix(READ) for statement in added_with_time(evidence, *folders)]


def added_with_time(evidence, *folders):
    before = verdict_micro_batch.diagnose(evidence)
    after = verdict_micro_batch.diagnose(replace(evidence, folders=tuple((READ_AT, one) for one in folders)))
    count = len(before.verdict.evidence)
    assert replace(after, verdict=replace(after.verdict, evidence=after.verdict.evidence[:count])) == before
    return [row.statement for row in after.verdict.evidence[count:]]


@pytest.mark.parametrize(
    ("made", "is_said"),
    [
        (operator(40 * MB), True),
        (operator(5 * 2 * MB), False),
        (operator(9 * MB, median_bytes=MB), False),
        (operator(40 * MB, median_bytes=10 * MB), False),
        (operator(40 * MB, median_bytes=None), False),
    ],
    ids=["skewed", "small", "below the size", "below the ratio", "files not read"],
)
def test_the_skew_of_the_state_is_evidence_only_if_it_is_large(made, is_said):
    said = added(WELL, folder(operators=(made,)))

    assert 5 * 2 * MB < SKEW_MIN_BYTES
    assert said == (
        ["the files of partition 3 of stateStoreSave (0) have 40.0 MB, those of the median partition 2.0 MB"]
        if is_said
        else []
    )


@pytest.mark.parametrize(("lag", "is_said"), [(30, True), (29, False), (None, False)])
def test_old_snapshots_are_evidence(lag, is_said):
    said = added(WELL, folder(operators=(operator(MB, lag=lag),)))

    assert bool(said) is is_said
    assert all("30 versions of its state after the newest snapshot" in statement for statement in said)


@pytest.mark.parametrize(("is_cut", "least"), [(False, ""), (True, "at least ")])
def test_many_files_are_evidence_with_the_small_ones(is_cut, least):
    many = folder(file_count=FILES_MIN_COUNT, small_count=49_000, is_cut=is_cut)

    assert added(WELL, many) == [
        f"the checkpoint folder has {least}{say.count(50_000)} files, {say.count(49_000)} of them below 100 kB"
    ]
    assert added(WELL, replace(many, file_count=FILES_MIN_COUNT - 1)) == []


def test_the_batch_that_failed_is_repeated_if_it_has_no_commit():
    failed = evidence_of(ended(events([progress(n, took_ms=900) for n in range(5)]), "java.lang.Exception: no"))
    number = failed.checkpoints[-1].header.checkpoint_id
    open_batch = FolderBatch(number, is_committed=False)

    assert added(failed, folder(batches=(open_batch,))) == [
        f"the folder has the offsets of batch {number} and no commit: the next start repeats it"
    ]
    assert added(failed, folder(batches=(replace(open_batch, is_committed=True),))) == []
    assert added(failed, folder(batches=(replace(open_batch, number=number - 1),))) == []
    assert added(WELL, folder()) == [], "a query that runs always has a batch without a commit"


def test_what_cannot_be_read_of_the_folder_is_evidence():
    assert added(WELL, folder(problems=("offsets/7 is broken: Spark cannot read it", "more"))) == [
        "the checkpoint folder: offsets/7 is broken: Spark cannot read it"
    ]


def test_copies_of_a_folder_are_no_evidence():
    one = folder(operators=(operator(40 * MB),))

    assert added(WELL, one) != []
    assert added(WELL, one, one) == []


def test_each_row_says_when_the_folder_was_read():
    many = folder(
        operators=(operator(40 * MB, lag=30),),
        file_count=FILES_MIN_COUNT,
        problems=("offsets/7 is broken: Spark cannot read it",),
    )
    statements = added_with_time(WELL, many)

    assert len(statements) == 4
    assert all(statement.endswith(READ) for statement in statements)
