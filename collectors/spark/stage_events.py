"""Reads the Spark jobs, stages and tasks of micro-batches out of the lines of an event log. Does no I/O.

The properties of a job (``SparkListenerJobStart``) name its query and its micro-batch. Its group is the run, unless the
code of the query or one of its threads has set another, so a job belongs to the run of its query that is open. Threads
that outlive a batch keep its number, and then the batch in which their job begins is not whole. ``StageCompleted`` has
the sums over the tasks of a stage, and ``TaskEnd`` the times of each task. Tasks are most of a log, so their lines are
not parsed: the few values are cut out of them. A stage keeps the times of its tasks until it has completed, and a batch
its jobs and its longest stages until its progress is reported.

Invariant: what is returned of a batch is whole. If a part of the log was left out (compaction, files in another order),
``gap`` forgets the open batches, and the next batch of each run is not returned either, because it may have begun
before.

Source: ``JsonProtocol`` of Spark 3.4 to 4.3, and the properties ``MicroBatchExecution.BATCH_ID_KEY`` and
``StreamExecution.QUERY_ID_KEY``.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson

from backend.domain.batch_work import JOB_IDS_MAX, STAGES_MAX, BatchWork, StageWork, covered_ms, longest
from backend.domain.text import clean

Run = tuple[str, str]
"""A run of a query: the ids of the query and of the run."""

BEGIN: Final = b'{"Event":"SparkListener'
"""Each line of an event that Spark has in its core begins so."""
_TASK_END: Final = b'TaskEnd"'
_OTHERS: Final = (b'JobStart"', b'JobEnd"', b'StageCompleted"')
KINDS: Final = (_TASK_END, *_OTHERS)
"""What follows ``BEGIN`` in a line that ``WorkReader`` reads."""
_AT: Final = len(BEGIN)
_TASK: Final = re.compile(
    rb'\{"Event":"SparkListenerTaskEnd","Stage ID":(\d{1,9}),"Stage Attempt ID":\d+,"Task Type":"\w+",'
    rb'"Task End Reason":\{"Reason":"Success"\},"Task Info":\{"Task ID":\d+,"Index":\d+,"Attempt":\d+,'
    rb'(?:"Partition ID":\d+,)?"Launch Time":(\d{1,15}),"Executor ID":"[^"]*","Host":"[^"]*","Locality":"\w+",'
    rb'"Speculative":\w+,"Getting Result Time":\d+,"Finish Time":(\d{1,15}),'
)
_SHUFFLE_ROWS, _INPUT_ROWS = b'"Total Records Read":', b'"Records Read":'
_METRICS, _METRICS_BYTES = b'"Task Metrics":', 2_500
# The long part of an event and what follows it: the stages of a job, and the data sets of a stage. Inside a text, a
# quote has a backslash before it, so what is found is a member.
_STAGES, _STAGE_IDS = b',"Stage Infos":', b',"Stage IDs":'
_QUERY_ID: Final = b'"sql.streaming.queryId":'
_STAGE_ID, _DATA_SETS = b'"Stage Info":{"Stage ID":', b',"RDD Info":'
_SUBMITTED, _COMPLETED = b',"Submission Time":', b',"Completion Time":'
_DIGITS: Final = re.compile(rb"\d{1,15}")
_STAGE_OF_TASK: Final = re.compile(rb'"Stage ID":(\d{1,9}),')
# The id of the stage is the first member of the event, before anything that may have a member of this name.
_STAGE_WITHIN: Final = 80
_JOB_OF_END: Final = re.compile(rb'\{"Event":"SparkListenerJobEnd","Job ID":(\d{1,9})[,}]')
_RUN_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ENDS_OF_OTHERS: Final = ("TaskKilled", "TaskCommitDenied")
"""Such a task has not failed: another attempt was faster, or the stage was cancelled. The driver counts them apart."""
_NAME_MAX: Final = 200
_NUMBER_MAX: Final = 2**53
_TASKS_MAX: Final = 1_000_000
"""So many times of tasks are kept at once, over all stages. A stage with more has no median."""
_BATCHES_MAX: Final = 1_000
_JOBS_MAX: Final = 10_000
_STAGES_MAX: Final = 20_000
_SUMS: Final = {
    "internal.metrics.executorRunTime": "run_ms",
    "internal.metrics.jvmGCTime": "gc_ms",
    "internal.metrics.memoryBytesSpilled": "memory_spill_bytes",
    "internal.metrics.diskBytesSpilled": "disk_spill_bytes",
    "internal.metrics.input.bytesRead": "input_bytes",
    "internal.metrics.shuffle.write.bytesWritten": "shuffle_write_bytes",
}
_SHUFFLE_READ: Final = ("internal.metrics.shuffle.read.remoteBytesRead", "internal.metrics.shuffle.read.localBytesRead")
# Spark leaves out a sum that is zero, if the metrics of the stage are reported at all.
_REPORTED: Final = "internal.metrics.executorRunTime"


def is_of_work(line: bytes) -> bool:
    """Return whether a line has an event that ``WorkReader`` reads."""
    return line.startswith(BEGIN) and line.startswith(KINDS, _AT)


@dataclass(slots=True)
class _Stage:
    """The tasks of a stage so far. ``rows`` are those of the shuffle, or else of the input; -1 if none is reported."""

    batch: tuple[Run, int]
    took_ms: array[int] = field(default_factory=lambda: array("q"))
    rows: array[int] = field(default_factory=lambda: array("q"))
    failed_count: int = 0
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class _Done:
    """An attempt of a stage that has completed. ``line`` is its event without what is not read."""

    stage_id: int
    duration_ms: int
    line: bytes
    stage: _Stage


@dataclass(slots=True)
class _Batch:
    execution_id: int | None
    job_ids: list[int] = field(default_factory=list)
    job_count: int = 0
    open_count: int = 0
    spans: list[tuple[int, int]] = field(default_factory=list)
    stages: list[_Done] = field(default_factory=list)
    stage_count: int = 0


@dataclass(slots=True)
class WorkReader:
    """Reads the events of one log in their order."""

    _jobs: dict[int, tuple[tuple[Run, int], int]] = field(default_factory=dict)
    _stages: dict[int, _Stage] = field(default_factory=dict)
    _batches: dict[tuple[Run, int], _Batch] = field(default_factory=dict)
    _task_count: int = 0
    _whole: set[Run] | None = None
    """The runs of which the next batch is whole; None if all are, as there was no gap."""
    _open: dict[Run, int | None] = field(default_factory=dict)
    """The runs that have begun or reported a batch, with the newest batch that they reported."""
    _cut: set[tuple[str, int] | Run] = field(default_factory=set)
    """Batches that are not whole: by the query and the number, or by the run of which it is the next one."""

    def copy(self) -> WorkReader:
        """Return a copy that changes by itself."""
        return WorkReader(
            dict(self._jobs),
            {n: replace(s, took_ms=s.took_ms[:], rows=s.rows[:]) for n, s in self._stages.items()},
            {
                key: replace(b, job_ids=b.job_ids[:], spans=b.spans[:], stages=b.stages[:])
                for key, b in self._batches.items()
            },
            self._task_count,
            None if self._whole is None else set(self._whole),
            dict(self._open),
            set(self._cut),
        )

    def gap(self) -> None:
        """Note that a part of the log is missing before what is read next."""
        self._jobs, self._stages, self._batches, self._task_count = {}, {}, {}, 0
        self._whole, self._open, self._cut = set(), {}, set()

    def begin(self, run: Run) -> None:
        """Note that a run has begun, so that its first batch is whole."""
        self._open[run] = None
        if self._whole is not None:
            self._whole.add(run)

    def end(self, run: Run) -> None:
        """Forget a run that has ended."""
        self._open.pop(run, None)
        self._cut.discard(run)
        for key in [k for k in self._batches if k[0] == run]:
            del self._batches[key]
        if self._whole is not None:
            self._whole.discard(run)

    def read(self, line: bytes) -> None:
        """Read a line of which ``is_of_work`` is true. A damaged one is left out."""
        try:
            if line.startswith(_TASK_END, _AT):
                self._task_end(line)
                return
            if line.startswith(b"JobStart", _AT):
                begin = line.find(_STAGES)
                end = line.find(_STAGE_IDS, max(0, begin))
                if line.find(_QUERY_ID, max(0, end)) < 0:
                    return
                self._job_start(orjson.loads(line if begin < 0 or end < begin else line[:begin] + line[end:]))
            elif line.startswith(b"JobEnd", _AT):
                self._job_end(line)
            elif self._stages:
                self._stage_completed(line)
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
            # Any part of a damaged document may have another type. What it belongs to is then not whole.
            self.gap()

    def finish(self, run: Run, batch_id: int, is_wanted: Callable[[], bool]) -> BatchWork | None:
        """Return what a batch did that has ended, and forget it and those before it.

        Return None if it is not whole, or not wanted, which is asked only of a whole one.
        """
        found = self._batches.pop((run, batch_id), None)
        for key in [k for k in self._batches if k[0] == run and k[1] <= batch_id]:
            del self._batches[key]
        self._open[run] = batch_id
        is_cut = run in self._cut or (run[0], batch_id) in self._cut
        self._cut -= {run, (run[0], batch_id)}
        if self._whole is not None and run not in self._whole:
            self._whole.add(run)
            return None
        if found is None or is_cut or not is_wanted():
            return None
        try:
            stages = [_stage_work(done) for done in found.stages]
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
            return None
        return BatchWork(
            execution_id=found.execution_id,
            job_ids=tuple(found.job_ids),
            job_count=found.job_count,
            stage_count=found.stage_count,
            jobs_ms=None if found.open_count else covered_ms(found.spans),
            stages=longest(stages),
        )

    def _job_start(self, document: dict[str, Any]) -> None:
        of = document.get("Properties") or {}
        query, batch = of.get("sql.streaming.queryId"), of.get("streaming.sql.batchId")
        if query is None or batch is None:
            return
        run = self._run_of(str(query).lower(), str(of.get("spark.jobGroup.id")).lower())
        if run is None:
            self._note_cut((str(query).lower(), int(batch)))
            return
        newest = self._open.get(run)
        if newest is not None and int(batch) <= newest:
            self._note_cut(run)
            return
        key = (run, int(batch))
        found = self._batches.get(key)
        if found is None:
            while len(self._batches) >= _BATCHES_MAX:
                del self._batches[next(iter(self._batches))]
            root = of.get("spark.sql.execution.root.id", of.get("spark.sql.execution.id"))
            found = self._batches[key] = _Batch(None if root is None else _whole(int(root)))
        number = _whole(document["Job ID"])
        if len(found.job_ids) < JOB_IDS_MAX:
            found.job_ids.append(number)
        found.job_count += 1
        found.open_count += 1
        if len(self._jobs) >= _JOBS_MAX or len(self._stages) >= _STAGES_MAX:
            self.gap()
            return
        self._jobs[number] = key, _whole(document["Submission Time"])
        for stage in document["Stage IDs"]:
            # A job names the stages of earlier jobs whose output it reads, which do not run again.
            self._stages.setdefault(_whole(stage), _Stage(key))

    def _run_of(self, query: str, group: str) -> Run | None:
        """Return the run to which a job of the query belongs; None if that is not known."""
        if (query, group) in self._open:
            return query, group
        running = [run for run in self._open if run[0] == query]
        if len(running) == 1:
            return running[0]
        return (query, group) if not running and _RUN_ID.fullmatch(group) else None

    def _note_cut(self, what: tuple[str, int] | Run) -> None:
        if len(self._cut) >= _BATCHES_MAX:
            self.gap()
        self._cut.add(what)

    def _job_end(self, line: bytes) -> None:
        named = _JOB_OF_END.match(line)
        if not self._jobs or (named is not None and int(named[1]) not in self._jobs):
            return
        document = orjson.loads(line)
        started = self._jobs.pop(document["Job ID"], None)
        if started is None:
            return
        key, began_ms = started
        batch = self._batches.get(key)
        if batch is not None:
            batch.open_count -= 1
            batch.spans.append((began_ms, _whole(document["Completion Time"])))
        if not any(other == key for other, _ in self._jobs.values()):
            for number in [n for n, s in self._stages.items() if s.batch == key]:
                self._task_count -= len(self._stages.pop(number).took_ms)

    def _task_end(self, line: bytes) -> None:
        """Read the end of a task. If its line is damaged, the tasks of its stage are not all known."""
        try:
            self._task(line)
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
            named = _STAGE_OF_TASK.search(line)
            stage = None if named is None else self._stages.get(int(named[1]))
            for other in self._stages.values() if named is None else () if stage is None else (stage,):
                other.is_cut = True

    def _task(self, line: bytes) -> None:
        usual = _TASK.match(line)
        if usual is None:
            self._unusual_task(line)
            return
        number, launched, finished = usual.groups()
        stage = self._stages.get(int(number))
        if stage is None:
            return
        if self._task_count >= _TASKS_MAX:
            stage.is_cut = True
            return
        stage.took_ms.append(max(0, int(finished) - int(launched)))
        stage.rows.append(_rows_read(line))
        self._task_count += 1

    def _unusual_task(self, line: bytes) -> None:
        """Read a task that has failed, or whose line has another order."""
        named = _STAGE_OF_TASK.search(line, 0, _STAGE_WITHIN)
        if not self._stages or (named is not None and int(named[1]) not in self._stages):
            return
        document = orjson.loads(line)
        stage = self._stages.get(_whole(document["Stage ID"]))
        if stage is None:
            return
        info = document["Task Info"]
        reason = document["Task End Reason"]["Reason"]
        if reason != "Success":
            stage.failed_count += reason not in _ENDS_OF_OTHERS
        elif self._task_count >= _TASKS_MAX:
            stage.is_cut = True
        else:
            stage.took_ms.append(max(0, _whole(info["Finish Time"]) - _whole(info["Launch Time"])))
            stage.rows.append(_rows_read(line))
            self._task_count += 1

    def _stage_completed(self, line: bytes) -> None:
        number = _number(line, line.index(_STAGE_ID) + len(_STAGE_ID))
        stage = self._stages.get(number)
        if stage is None:
            return
        self._task_count -= len(stage.took_ms)
        self._stages[number] = _Stage(stage.batch)
        batch = self._batches.get(stage.batch)
        if batch is None:
            return
        batch.stage_count += 1
        begin = line.find(_DATA_SETS)
        tail = line.find(_SUBMITTED, max(0, begin))
        if begin < 0 or tail < begin:
            raise ValueError("a stage has its data sets before its times")
        began, ended = tail + len(_SUBMITTED), line.index(_COMPLETED, tail) + len(_COMPLETED)
        duration_ms = max(0, _number(line, ended) - _number(line, began))
        batch.stages.append(_Done(number, duration_ms, line[:begin] + line[tail:], stage))
        batch.stages.sort(key=lambda s: (-s.duration_ms, s.stage_id))
        del batch.stages[STAGES_MAX:]


def _stage_work(done: _Done) -> StageWork:
    info, stage = orjson.loads(done.line)["Stage Info"], done.stage
    sums = {a.get("Name"): a.get("Value") for a in info.get("Accumulables") or ()}
    known = _REPORTED in sums
    values = {name: _sum(sums.get(key, 0)) if known else None for key, name in _SUMS.items()}
    count = _whole(info["Number of Tasks"])
    # A task may run twice (speculation), and only the first result counts.
    is_whole = not stage.is_cut and len(stage.took_ms) >= count
    rows = stage.rows if is_whole and all(r >= 0 for r in stage.rows) else array("q")
    took = stage.took_ms if is_whole else array("q")
    return StageWork(
        stage_id=done.stage_id,
        attempt=_whole(info["Stage Attempt ID"]),
        name=clean(str(info.get("Stage Name") or ""), length_max=_NAME_MAX),
        task_count=count,
        failed_task_count=stage.failed_count,
        duration_ms=done.duration_ms,
        task_median_ms=_middle(took),
        task_max_ms=max(took, default=None),
        rows_median=_middle(rows),
        rows_max=max(rows, default=None),
        shuffle_read_bytes=sum(_sum(sums.get(key, 0)) for key in _SHUFFLE_READ) if known else None,
        **values,
    )


def _rows_read(line: bytes) -> int:
    """Return the rows that a task read from the shuffle or, if it read none, from its input; -1 if neither is known."""
    # The metrics are at the end of the line, after the accumulators, which are most of it.
    at = line.find(_METRICS, max(0, len(line) - _METRICS_BYTES))
    at = line.find(_METRICS) if at < 0 else at
    if at < 0:
        return -1
    read = -1
    for name in (_SHUFFLE_ROWS, _INPUT_ROWS):
        found = line.find(name, at)
        if found >= 0:
            read = _number(line, found + len(name))
        if read > 0:
            return read
    return read


def _middle(values: array[int]) -> int | None:
    """Return the median as Spark has it: of an even number of values, the larger one of the two in the middle."""
    return sorted(values)[len(values) // 2] if values else None


def _number(line: bytes, at: int) -> int:
    """Return the number that begins at ``at`` in the line."""
    found = _DIGITS.match(line, at)
    if found is None:
        raise ValueError("a value is no whole number")
    return int(found[0])


def _sum(value: object) -> int:
    return _whole(int(value) if isinstance(value, str) else value)


def _whole(value: object) -> int:
    if type(value) is not int or not 0 <= value <= _NUMBER_MAX:
        raise ValueError("a value is no whole number")
    return value
