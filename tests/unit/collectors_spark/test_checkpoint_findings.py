"""Tests of what a checkpoint folder proves, and of what it is not taken to prove."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from collectors.spark.checkpoint_findings import Level, findings_of, shared_queries
from collectors.spark.checkpoint_folder import read_folder
from tests.support.spark_checkpoints import BEGAN, MadeCheckpoint

FOLDER = Path(__file__).resolve().parents[2] / "contract" / "recordings_spark_checkpoints"


@pytest.fixture
def made(tmp_path: Path) -> MadeCheckpoint:
    return MadeCheckpoint(tmp_path)


def found_in(made, after_s=5.0):
    """Return what the folder proves some seconds after the begin of its newest batch."""
    folder = read_folder(str(made.path))
    return findings_of(folder, now=made.at(max(folder.offsets, default=0)) + timedelta(seconds=after_s))


def texts(found, level=None):
    return [one.text for one in found.findings if level in (None, one.level)]


def fact(found, name):
    return next(one for one in found.facts if one.name == name)


def test_a_healthy_query_has_no_finding_and_the_age_of_its_commit(made):
    found = found_in(made.run(range(50, 80)))

    assert texts(found) == []
    assert found.summary.startswith("batch 79 is the newest that is committed, at 2026-11-21 10:13 UTC, 1.0 s ago")
    assert found.summary.endswith("no later batch has begun")
    assert fact(found, "committed batches").text == "50 to 79, 30 files"
    took = fact(found, "duration of a batch")
    assert (took.text.split(":")[0], took.basis) == (
        "4.0 s in the median of the newest 21, at most 4.0 s",
        "reconstructed",
    )
    assert fact(found, "from trigger to trigger").text.startswith("10.0 s in the median of the newest 20")
    assert fact(found, "set by the first start").text == "2 partitions, HDFSBackedStateStoreProvider"


def test_a_log_of_which_only_the_newest_files_are_read_says_how_many_it_has(made):
    made.run(range(1_000, 1_001))
    for number in range(1_000):
        made.write(f"commits/{number}", "v1\n{}")
    found = found_in(made)

    assert fact(found, "committed batches").text == "up to 1000, 1\u202f001 files"
    assert "commits has 1\u202f001 files, and Spark keeps 100 by default" in texts(found)


def test_of_a_folder_that_was_not_read_to_its_end_the_state_is_not_compared(made):
    made.run(range(35))
    for part in range(4):
        made.state(f"0/{part}/{35 if part else 3}.delta", 10)
    folder = read_folder(str(made.path))
    whole = findings_of(folder, now=made.at(35))
    assert any("restart" in text for text in texts(whole))
    folder.files.is_cut = True

    cut = findings_of(folder, now=made.at(35))

    assert not [text for text in texts(cut) if "partition" in text]
    assert fact(cut, "state of operator 0").text == "at least 40 B in 4 or more partitions"
    assert fact(cut, "files").text.startswith("at least ")


def test_an_open_batch_is_told_and_is_trouble_only_if_it_is_open_for_long(made):
    made.run(range(5)).begin(5)

    soon, late = found_in(made, 30), found_in(made, 900)

    assert "batch 5 began 30.0 s ago and is not committed: it runs, or it failed" in soon.summary
    assert texts(soon) == []
    assert texts(late) == [
        "batch 5 is open for 15 min, and none of the newest 5 batches took longer than 4.0 s: the query has ended or"
        " hangs"
    ]


def test_a_batch_that_takes_as_long_as_usual_is_no_trouble(made):
    made.interval_s, made.took_s = 200.0, 100.0
    made.run(range(5)).begin(5)

    assert texts(found_in(made, 900)) == []
    assert len(texts(found_in(made, 1_100))) == 1


def test_a_missing_file_before_the_newest_batch_blocks_the_start():
    found = findings_of(read_folder(str(FOLDER / "spark-2.3.1-inconsistent")), now=BEGAN)

    assert texts(found, Level.BLOCKS) == [
        "offsets/3 is missing before the newest batch 4: Spark refuses to start the query (batch 3 doesn't exist)"
    ]


def test_an_older_gap_a_lost_commit_and_a_lost_offset_are_told_apart(made):
    made.run(range(8))
    (made.path / "offsets/3").unlink()
    (made.path / "commits/5").unlink()
    assert texts(found_in(made), Level.TROUBLE) == [
        "offsets has no file of batch 3, although older ones are there",
        "commits has no file of batch 5, although later batches are committed",
    ]

    (made.path / "offsets/7").unlink()
    assert texts(found_in(made), Level.BLOCKS) == ["batch 7 is committed, but its file of offsets is missing"]


def test_asynchronous_progress_tracking_is_not_taken_for_gaps(made):
    for number in (0, 6, 12, 17, 22):
        made.run(range(number, number + 1))

    assert texts(found_in(made), Level.TROUBLE) == texts(found_in(made), Level.BLOCKS) == []
    assert "asynchronously" in texts(found_in(made))[0]


def test_several_open_batches_are_trouble_and_no_commits_at_all_are_not_known(made):
    made.run(range(3))
    for number in (3, 4, 5):
        made.begin(number)
    assert texts(found_in(made)) == ["3 batches after batch 2 have offsets and no commit: batches 3, 4 and 5"]

    old = findings_of(read_folder(str(FOLDER / "spark-2.1.0")), now=BEGAN)
    assert texts(old) == ["there is no file of commits, as in Spark 2.1.0: which batches are committed is not known"]
    assert "committed" not in old.summary


def test_a_commit_that_is_newer_than_the_next_batch_shows_two_writers(made):
    made.run(range(6))
    late = (made.at(4) + timedelta(seconds=25)).timestamp()
    os.utime(made.path / "commits/3", (late, late))

    (text,) = texts(found_in(made))

    assert text.startswith("commits/3 is 24.9 s newer than offsets/4, which Spark writes after it: two runs")


def test_a_trigger_that_goes_back_shows_other_clocks(made):
    made.run(range(5))
    early_ms = int(made.at(2).timestamp() * 1000)
    text = f'v1\n{{"batchWatermarkMs":0,"batchTimestampMs":{early_ms}}}\n4'
    made.write("offsets/4", text, made.at(4))

    assert texts(found_in(made)) == [
        "batch 4 was triggered 10.0 s before batch 3: the drivers have different clocks, or two runs use this folder"
    ]


def test_a_copy_that_lost_the_times_of_its_files_says_nothing_that_needs_them(made):
    made.run(range(6))
    for file in made.path.rglob("*"):
        os.utime(file, (BEGAN.timestamp() + 86_400, BEGAN.timestamp() + 86_400))

    found = found_in(made)

    assert texts(found) == []
    assert found.summary == "batch 5 is the newest that is committed; no later batch has begun"
    assert "duration of a batch" not in [one.name for one in found.facts]
    assert any("times of the files are lost" in line for line in found.missing)


def test_two_folders_of_one_query_are_copies(made, tmp_path):
    folders = [read_folder(str(made.run(range(2)).path)), read_folder(str(FOLDER / "spark-2.3.1"))]
    assert len(shared_queries(folders)) == 1
    assert shared_queries([folders[0], read_folder(str(FOLDER / "spark-3.2.0"))]) == []


def test_a_watermark_that_stands_still_is_trouble_after_half_an_hour(made):
    made.interval_s = 100.0
    for number in range(25):
        made.begin(number, watermark_ms=1_000 * (number < 2) + 60_000)
        made.commit(number)

    (text,) = texts(found_in(made))

    assert text.startswith("the watermark stands at 1970-01-01 00:01 UTC since 23 batches, 36 min 40 s")
    assert "before the trigger" in fact(found_in(made), "watermark").text


@pytest.mark.parametrize(("size", "is_told"), [(900_000, True), (360_000, False)])
def test_snapshots_that_grow_are_told(size, is_told, made):
    made.run(range(40))
    for number in range(1, 41):
        made.state(f"0/0/{number}.delta")
    made.state("0/0/10.snapshot", 250_000)
    made.state("0/0/40.snapshot", size)

    found = texts(found_in(made))

    assert bool(found) is is_told
    if is_told:
        assert found[0] == (
            "the state of operator 0 grows: its snapshots take 900 kB now and took 250 kB before, in versions 10 to 40"
        )


def test_a_state_without_snapshots_a_skewed_partition_and_a_missing_version_are_told(made):
    made.run(range(35))
    for part in range(4):
        made.state(f"0/{part}/35.delta", 1_000)
        made.state(f"0/{part}/34.snapshot", 1_000)
    made.state("0/2/33.delta", 12_000_000)
    (made.path / "state/0/3/35.delta").unlink()
    made.state("1/0/35.changelog")

    found = found_in(made)

    assert texts(found, Level.BLOCKS) == [
        "partition 3 of operator 0 has no file of version 35, which a restart after batch 34 reads"
    ]
    assert texts(found, Level.TROUBLE) == [
        "partition 2 of operator 0 has 12.0 MB, the median of its partitions 2.0 kB",
        "partition 0 of operator 1 has no snapshot in its newest 35 versions: a restart replays the changes of all of"
        " them",
    ]
    assert fact(found, "state of operator 0").text.startswith("12.0 MB in 8 files of 4 partitions, version 35")


def test_a_broken_newest_file_blocks_the_start_and_an_older_one_does_not(made):
    made.run(range(4))
    made.write("offsets/1", "v1")
    made.write("commits/3", "")

    found = found_in(made)

    assert texts(found, Level.BLOCKS) == ["commits/3 is broken: Spark cannot read it"]


def test_an_empty_checkpoint_says_so(made):
    found = findings_of(read_folder(str(made.path)), now=BEGAN)

    assert found.summary == "no batch has begun in this folder"
    assert fact(found, "committed batches").text == "none"
