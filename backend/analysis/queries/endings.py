"""The known errors with which a query ends, as one ordered list (``ENDINGS``): what each means, and what cures it.

The texts are those of Spark 2.4 to 4.3, of the Kafka source and of table formats. The first entry that fits is the
answer, so an entry that is more exact comes before a wider one. An error that is not listed says nothing here: most
come from the code of the query.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from backend.domain.verdict import Evidence


@dataclass(frozen=True, slots=True)
class Ending:
    """One known error. ``{batch}`` in a text is the number that the error names, or else that of the failed batch.

    ``pattern`` is searched in the error's class and text, which may be long and of any content. So each repetition in
    it has a bound, and the time of a search grows with the length of the text and no faster.
    """

    name: str
    pattern: str
    headline: str
    sentence: str
    cures: tuple[str, ...]
    no_cures: tuple[str, ...]
    would_decide: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KnownEnding:
    """What a known error says of one failed batch."""

    name: str
    headline: str
    sentence: str
    rows: tuple[Evidence, ...]
    would_decide: tuple[str, ...]


def of_message(text: str, number: int | None) -> KnownEnding | None:
    """Return what is known of an error, or None. ``number`` is that of the failed batch; None if it is not known."""
    for ending in ENDINGS:
        match = re.search(ending.pattern, text, re.IGNORECASE | re.DOTALL)
        if match is not None:
            named = next((g for name, g in sorted(match.groupdict().items()) if name.startswith("batch") and g), None)
            batch = named or ("N" if number is None else str(number))

            def said(words: str, batch: str = batch) -> str:
                return words.replace("{batch}", batch)

            rows = [Evidence(f"what cures it: {said(t)}", "cure") for t in ending.cures]
            rows += [Evidence(f"what does not help: {said(t)}", "no cure") for t in ending.no_cures]
            decided = tuple(said(t) for t in ending.would_decide)
            return KnownEnding(ending.name, ending.headline, said(ending.sentence), tuple(rows), decided)
    return None


_ONE_FOLDER_CURES: Final = (
    "stopping the other run (another application, a scheduler that started the query twice, or a driver that was taken"
    " for dead), and then starting this one again",
    "a checkpoint folder of its own for each query",
)
_ONE_FOLDER_NO_CURES: Final = (
    "a restart of this run while the other one is active: the other one then ends instead",
    "removing the checkpoint folder: the query would read its input again",
)

# A rename alone proves nothing: it fails for want of a right, of space, or of the source too.
_LOG_FILE_EXISTS: Final = (
    r"(?:FileAlreadyExists|(?:already|file)\sexists).{0,200}/(?:offsets|commits)/(?P<batch2>\d{1,18})\b"
    r"|/(?:offsets|commits)/(?P<batch3>\d{1,18})\b.{0,100}(?:already|file)\sexists"
)

ENDINGS: Final[tuple[Ending, ...]] = (
    # The first: a refusal names the files that it refuses, as the entries for these files do.
    Ending(
        "store-refuses",
        r"AccessDenied|Access Denied|\b403 Forbidden|AccessControlException|ExpiredToken|InvalidAccessKeyId"
        r"|DSQuotaExceeded|NSQuotaExceeded|No space left on device|Disk quota exceeded",
        "A store refuses to be written or read",
        "A store refuses: the credentials lack a right or have expired, or its space or quota is used up",
        ("the right, the credentials or the space at the store that the error names",),
        ("a restart before that",),
    ),
    Ending(
        "two-runs-on-one-folder",
        r"(?:CONCURRENT_STREAM_LOG_UPDATE|Concurrent update to)(?:.{0,120}?\sdetected\sfor\s(?P<batch>\d{1,18}))?"
        r"|jobs\sdetected\sfor\s(?P<batch1>\d{1,18})|Multiple HDFSMetadataLog"
        r"|ConcurrentTransactionException|DELTA_CONCURRENT_TRANSACTION|" + _LOG_FILE_EXISTS,
        "Two runs use the same checkpoint folder",
        "Two runs use the same checkpoint folder: another one has written the log of batch {batch} (the file"
        " offsets/{batch} or commits/{batch}) meanwhile",
        _ONE_FOLDER_CURES,
        _ONE_FOLDER_NO_CURES,
        ("which other application wrote offsets/{batch}: the file's time and owner, and the applications that run",),
    ),
    Ending(
        "query-is-active-already",
        r"CONCURRENT_QUERY\b|another (?:query|instance) (?:of this query|with (?:the )?same id)"
        r"|query with same id is already active",
        "The same query runs already",
        "The same query runs already: two starts have the same checkpoint folder, and thus the same query id",
        _ONE_FOLDER_CURES,
        _ONE_FOLDER_NO_CURES,
    ),
    Ending(
        "file-log-gap",
        r"\.compact\s{1,9}doesn't exist when compacting batch (?P<batch>\d{1,18})",
        "The log of files has a gap",
        "The log of a file sink or source lacks the compacted file that batch {batch} continues (a file .compact in"
        " _spark_metadata or sources): it was removed, or two queries write to one folder",
        (
            "restoring the missing file (a version of the bucket, a backup)",
            "if it is lost: a new output folder and checkpoint folder, from which readers then read",
        ),
        ("a restart, which looks for the same file", "removing the other files of the log: readers then see no output"),
        ("what removed the file: a lifecycle rule of the store, a cleaning job, or another query on the folder",),
    ),
    Ending(
        "offset-log-gap",
        r"batch(?:es)? \(?(?P<batch>\d{1,18})\b[\d, ]{0,300}\)? (?:does|do)n't exist"
        r"|(?:File(?:NotFound|.{0,20}does not exist)|No such file|NoSuchKey|\b404\b).{0,300}/(?:offsets"
        r"|commits)/(?P<batch2>\d{1,18})\b"
        r"|/(?:offsets|commits)/(?P<batch3>\d{1,18})\b.{0,100}(?:does not exist|No such file|NoSuchKey)",
        "The checkpoint log has a gap",
        "The checkpoint log has a gap: batch {batch} is missing in it (the file offsets/{batch} or commits/{batch}), so"
        " the query does not know where to continue",
        (
            "restoring offsets/{batch} or commits/{batch} (a version of the bucket, a backup)",
            "if it is lost: moving the newer files of offsets and commits away, so that the query begins"
            " after the newest"
            " batch without a gap and repeats the later ones; copy the folder first",
        ),
        ("a restart, which reads the same files", "more retries or time"),
        ("what removed the file: a lifecycle rule of the store, a copy of the folder, or a second query on it",),
    ),
    Ending(
        "broken-log-file",
        r"Incomplete log file|Malformed log file|Failed to read log file|/(?:offsets"
        r"|commits)/(?P<batch>\d{1,18})\b.{0,200}EOFException"
        r"|unexpected end of (?:file|input).{0,200}/(?:offsets|commits)/(?P<batch1>\d{1,18})\b",
        "A file of the checkpoint log is broken",
        "A file of the checkpoint log is empty or cut off, as when the driver or the store failed while it was written"
        " (offsets/{batch} or commits/{batch})",
        (
            "moving the broken file away if it is the newest of its folder: the query then repeats that batch; copy the"
            " folder first",
        ),
        ("a restart, which reads the same file",),
        ("the sizes of the newest files in offsets and commits: a broken one is empty or has no last line",),
    ),
    Ending(
        "state-file-missing",
        r"CANNOT_READ_DELTA_FILE|CANNOT_READ_MISSING_SNAPSHOT_FILE|Error reading (?:delta|snapshot"
        r"|streaming state) file"
        r"|/state/\d{1,18}/\d{1,18}/.{0,80}(?:does not exist|NoSuchKey)|FileNotFound.{0,200}/state/\d{1,18}/\d{1,18}/",
        "A file of the state is missing",
        "A file of the state that batch {batch} needs is missing in the checkpoint folder, or two queries write there",
        (
            "restoring the file (a version of the bucket, a backup)",
            "if it is lost: a new checkpoint folder, with the state built up again from the input",
        ),
        ("a restart, which reads the same file", "another state store with the same folder"),
        ("what removed the file: a lifecycle rule of the store, or a second query on the folder",),
    ),
    Ending(
        "input-lost",
        r"KAFKA_DATA_LOSS|failOnDataLoss|Some data may have been (?:lost|missed)|OffsetOutOfRangeException"
        r"|offset was changed from \d{1,20} to \d",
        "The input was removed before it was read",
        "The source no longer has the rows that the batch is to read: they were older than the source"
        " keeps them, or the"
        " topic was created again",
        (
            "a longer retention at the source than the query is ever behind or stopped",
            "failOnDataLoss = false if the loss is accepted; the query then continues at the oldest row that is left",
        ),
        ("a restart, which asks for the same offsets",),
        ("the oldest offset at the source against the offsets of the last batch",),
    ),
    Ending(
        "sink-conflict",
        r"Concurrent(?:Append|DeleteRead|DeleteDelete|Write)Exception|MetadataChangedException|ProtocolChangedException"
        r"|DELTA_CONCURRENT_(?!TRANSACTION)|DELTA_(?:METADATA|PROTOCOL)_CHANGED|CommitFailedException"
        r"|(?:Hoodie)?WriteConflictException|Cannot commit: .{0,60}(?:stale|conflict)|Found conflicting files",
        "The table's commit was in conflict with another writer",
        "The sink's commit was in conflict with another writer of the same table",
        (
            "conditions of merge and delete that name the partition, so that writers touch different"
            " files; writers of one"
            " partition one after another",
            "compaction and maintenance of the table at other times, or on partitions that the query no longer writes",
            "retries of the commit in the query's code (foreachBatch), or in the table's own settings",
        ),
        ("more executors or memory", "a restart: the same batch begins again, and the other writer still writes"),
        ("the table's history: which operation committed at the time of the error",),
    ),
    Ending(
        "source-table-changed",
        r"DELTA_SOURCE_(?:IGNORE|TABLE_IGNORE)|Detected (?:a )?(?:data update|deleted data)|DELTA_SCHEMA_CHANGED"
        r"|schema of your Delta table has changed",
        "The table that is read was changed",
        "The table that the query reads was changed other than by new rows: rows were updated or deleted, or its schema"
        " changed",
        ("skipChangeCommits, or reading the table's change feed, if changed rows do not matter or are to be read",),
        ("a restart, which reads the same commit; after a change of the schema one restart does help",),
    ),
    Ending(
        "query-changed",
        r"There are \[\d{1,18}\] sources in the checkpoint"
        r"|Provided schema doesn't match the schema of the (?:existing )?state"
        r"|STATE_STORE_.{0,40}NOT_COMPATIBLE|STATE_STORE_INVALID_|number of (?:streaming )?sources.{0,40}changed",
        "The query does not fit its checkpoint",
        "The query was changed so that it does not fit its checkpoint: other sources, grouping or state"
        " than those of its"
        " first start",
        ("the query as it was, or a new checkpoint folder for the changed one",),
        ("a restart",),
    ),
    Ending(
        "memory",
        r"OutOfMemoryError|GC overhead limit exceeded|Container killed by YARN for exceeding|exit(?:ed with"
        r"| )?code:? 137",
        "A process ran out of memory",
        "A process of the query ran out of memory",
        (
            "smaller batches (a limit of offsets or files), more partitions, or less state on the heap;"
            " more memory if the"
            " rows of a batch and the state are bounded",
        ),
        ("a restart with the same batch: it needs the same memory",),
        ("whether it was the driver or an executor, and the rows of the batch and of the state",),
    ),
)
