"""Tests of the known errors of queries: which is which, and that an unknown error stays one.

The texts are written after those of Spark, Kafka's source and the table formats, with neutral names.
"""

from __future__ import annotations

import re
import time

import pytest

from backend.analysis.queries.endings import ENDINGS, of_message
from backend.analysis.verdict.verdict import diagnose
from tests.support.made_up_queries import ended, events, evidence_of, progress

SPARK = "org.apache.spark.SparkException: "
STATE = "java.lang.IllegalStateException: "
TEXTS = [
    ("two-runs-on-one-folder", SPARK + "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming"
     " jobs detected for 61. Please make sure only one streaming job runs on a location at a time.", "offsets/61"),
    ("two-runs-on-one-folder", "java.lang.AssertionError: assertion failed: Concurrent update to the log. Multiple"
     " streaming jobs detected for 7", "offsets/7"),
    ("two-runs-on-one-folder", "java.util.ConcurrentModificationException: Multiple HDFSMetadataLog are using"
     " file:/chk/offsets", "offsets/70"),
    ("two-runs-on-one-folder", "org.apache.hadoop.fs.FileAlreadyExistsException: rename destination"
     " /chk/commits/2041 already exists.", "commits/2041"),
    ("two-runs-on-one-folder", "org.apache.hadoop.fs.FileAlreadyExistsException: Failed to rename"
     " /chk/offsets/.12.8f.tmp to /chk/offsets/12 as destination already exists", "offsets/12"),
    ("two-runs-on-one-folder", "java.nio.file.FileAlreadyExistsException: /chk/offsets/12", "offsets/12"),
    ("two-runs-on-one-folder", "java.io.IOException: File exists: /chk/commits/12", "commits/12"),
    ("two-runs-on-one-folder", "io.delta.exceptions.ConcurrentTransactionException: This error occurs when multiple"
     " streaming queries are using the same checkpoint to write into this table.", "offsets/70"),
    ("query-is-active-already", STATE + "Cannot start query with id 0b0b as another query with same id is already"
     " active. Perhaps you are attempting to restart a query from checkpoint that is already active.", "query id"),
    ("query-is-active-already", SPARK + "[CONCURRENT_QUERY] Another instance of this query was just started by a"
     " concurrent session.", "query id"),
    ("offset-log-gap", STATE + "batch 12 doesn't exist", "offsets/12"),
    ("offset-log-gap", STATE + "batches (12, 13) don't exist (startId: 10, endId: 14)", "batch 12 is missing"),
    ("offset-log-gap", "java.io.FileNotFoundException: File file:/chk/offsets/305 does not exist", "offsets/305"),
    ("offset-log-gap", "java.io.FileNotFoundException: No such file or directory: s3a://b/commits/99", "commits/99"),
    ("file-log-gap", STATE + "/out/_spark_metadata/9.compact doesn't exist when compacting batch 19"
     " (compactInterval: 10)", "batch 19"),
    ("file-log-gap", STATE + "history/in/sources/0/129.compact doesn't exist when compacting batch 139"
     " (compactInterval: 10)", "batch 139"),
    ("broken-log-file", STATE + "Incomplete log file in the offset commit log", "empty or cut off"),
    ("broken-log-file", SPARK + "Failed to read log file file:/chk/offsets/12. Malformed log file", "empty or cut off"),
    ("state-file-missing", SPARK + "[CANNOT_LOAD_STATE_STORE.CANNOT_READ_DELTA_FILE_NOT_EXISTS] An error occurred",
     "state"),
    ("state-file-missing", STATE + "Error reading delta file /chk/state/0/5/12.delta of HDFSStateStoreProvider: it"
     " does not exist", "state"),
    ("input-lost", STATE + "Cannot fetch offset 5. Some data may have been lost because they are not available in"
     " Kafka any more; set the source option failOnDataLoss to false to ignore", "no longer has the rows"),
    ("input-lost", STATE + "Partition orders-0's offset was changed from 900 to 12, some data may have been missed.",
     "no longer has the rows"),
    ("sink-conflict", "io.delta.exceptions.ConcurrentAppendException: Files were added to the root of the table by a"
     " concurrent update. Please try the operation again.", "another writer"),
    ("sink-conflict", "[DELTA_CONCURRENT_APPEND] ConcurrentAppendException: Files were added to partition [day=1]",
     "another writer"),
    ("sink-conflict", "org.apache.iceberg.exceptions.CommitFailedException: Requirement failed: branch main has"
     " changed", "another writer"),
    ("sink-conflict", "org.apache.hudi.exception.HoodieWriteConflictException: cannot resolve conflicts for"
     " overlapping writes", "another writer"),
    ("sink-conflict", "io.delta.exceptions.MetadataChangedException: The metadata of the table has been changed by a"
     " concurrent update.", "another writer"),
    ("source-table-changed", "java.lang.UnsupportedOperationException: Detected a data update (for example"
     " part-0) in the source table at version 12.", "other than by new rows"),
    ("query-changed", "java.lang.AssertionError: assertion failed: There are [1] sources in the checkpoint offsets and"
     " now there are [2] sources requested by the query. Cannot continue.", "does not fit its checkpoint"),
    ("query-changed", STATE + "Provided schema doesn't match the schema of the existing state!", "does not fit"),
    ("store-refuses", "java.nio.file.AccessDeniedException: s3a://b/chk/offsets: AccessDenied (403)", "refuses"),
    ("store-refuses", "org.apache.hadoop.hdfs.protocol.DSQuotaExceededException: The quota is exceeded", "refuses"),
    ("store-refuses", "org.apache.hadoop.security.AccessControlException: Permission denied: user=etl, access=WRITE,"
     " inode=/chk/offsets: rename /chk/offsets/.12.8f.tmp to /chk/offsets/12", "refuses"),
    ("store-refuses", "org.apache.hadoop.hdfs.protocol.DSQuotaExceededException: The quota is exceeded: rename"
     " /chk/commits/.12.8f.tmp to /chk/commits/12", "refuses"),
    ("store-refuses", "java.io.FileNotFoundException: /chk/offsets/12: AccessDenied, and the file does not exist",
     "refuses"),
    ("memory", "java.lang.OutOfMemoryError: Java heap space", "out of memory"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "said"), TEXTS)
def test_a_known_error_has_its_meaning_its_cures_and_what_does_not_help(name, text, said):
    found = of_message(text, 70)

    assert found is not None
    assert found.name == name
    told = f"{found.sentence} {' '.join(r.statement for r in found.rows)} {' '.join(found.would_decide)}"
    assert said in told
    assert "{batch}" not in told
    assert {r.metric for r in found.rows} == {"cure", "no cure"}


def test_every_entry_of_the_table_has_a_text():
    assert {name for name, _, _ in TEXTS} == {e.name for e in ENDINGS}


@pytest.mark.parametrize(
    "text",
    [
        "PYTHON_EXCEPTION: ValueError: row 62 cannot be read",
        "org.apache.spark.SparkException: Job aborted due to stage failure: Task 3 in stage 12.0 failed 4 times",
        "java.util.concurrent.TimeoutException: Futures timed out after [300 seconds]",
        "org.apache.spark.sql.AnalysisException: column orders_404 does not exist",
        "java.lang.RuntimeException: batch is late",
        "java.io.IOException: Failed to rename temp file /chk/offsets/.12.8f.tmp to /chk/offsets/12 as rename returned"
        " false",
        "java.io.IOException: attempt 1404 could not write /chk/offsets/12",
        "java.io.IOException: Could not rename /chk/commits/.7.1a.tmp to /chk/commits/7",
        "",
    ],
)
def test_an_unknown_error_has_no_meaning(text):
    assert of_message(text, 70) is None


@pytest.mark.parametrize("ending", ENDINGS, ids=lambda e: e.name)
def test_no_repetition_in_a_pattern_is_without_a_bound(ending):
    assert re.findall(r"(?<!\\)[*+]|\{\d*,\}", ending.pattern) == []


HOSTILE = [
    "x",
    "1",
    "batch 1",
    "batches (1, ",
    "rename ",
    "already exists ",
    "404 ",
    "/offsets/1",
    "/state/1/1/",
    "\n ",
]


@pytest.mark.parametrize("piece", HOSTILE)
@pytest.mark.parametrize("start", ["", "batch "])
def test_the_time_for_a_hostile_text_grows_with_its_length_and_not_with_its_square(start, piece):
    def took(length):
        text = (start + piece * length)[:length]
        assert of_message(text, None) is None
        times = []
        for _ in range(5):
            began = time.thread_time()
            of_message(text, None)
            times.append(time.thread_time() - began)
        return min(times)

    # A search whose time grows with the square takes 64 times as long.
    assert took(32_000) < 24 * took(4_000)


def test_the_verdict_on_a_known_error_names_the_cause_the_batch_and_the_files():
    text = STATE + "batch 12 doesn't exist"
    found = diagnose(evidence_of(ended(events([progress(n, took_ms=900) for n in range(14, 20)]), text)))

    assert (found.health, found.verdict.headline) == ("failing", "The checkpoint log has a gap")
    assert "The query ended in batch 20. The checkpoint log has a gap: batch 12 is missing" in found.verdict.sentence
    assert any("restoring offsets/12" in e.statement for e in found.verdict.evidence if e.metric == "cure")
    assert any("a restart" in e.statement for e in found.verdict.evidence if e.metric == "no cure")


def test_a_cause_that_stands_deeper_in_the_error_than_its_first_line_is_found():
    text = (
        "org.apache.spark.SparkException: Writing job aborted\n\tat org.example.Sink\nCaused by: "
        "io.delta.exceptions.ConcurrentAppendException: Files were added by a concurrent update."
    )
    found = diagnose(evidence_of(ended(events([progress(n, took_ms=900) for n in range(14, 20)]), text)))

    assert "conflict with another writer" in found.verdict.sentence
