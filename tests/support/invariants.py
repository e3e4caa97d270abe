"""Check all invariants of runtime.md 7.1 (INV-1 to INV-15) during a run. A violation is reported with its rule.

``Watch(engine)`` attaches itself to an engine that has not run yet. ``run_until`` runs the engine and checks between
events. ``end`` stops the checkpoints and checks what remains. Each violation raises an ``InvariantError`` that names
the rule. The checks see the bytes of channels and the origin of records, which operators do not see, and compute their
own expected values. The job may be rescaled during the run, and continued in another one (``take_over``).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from backend.domain.barriers import BarrierEvent, BarrierEventKind
from backend.domain.errors import CorruptCheckpointError, ProtocolViolationError
from backend.runtime.engine.jobfile import JobSpec
from backend.runtime.engine.kernel import JobEngine, JobStatus
from backend.runtime.job.graph import Graph, VertexKind
from backend.runtime.measure.measures import CheckpointState, MeasuredCheckpoint
from backend.runtime.network.remote_channel import RemoteChannel
from backend.runtime.snapshot.completed import Completed
from backend.runtime.task.task import Task, TaskStatus
from tests.support.buffer_books import check_books
from tests.support.channel_files_oracle import ChannelFilesOracle
from tests.support.channel_oracle import ChannelOracle
from tests.support.counting_oracle import CountingOracle, SourceRecords
from tests.support.inside_jobs import give_rows
from tests.support.intended_losses import IntendedLosses
from tests.support.measurement_oracle import MeasurementOracle
from tests.support.restored_channels import in_flight_of
from tests.support.shared_files_oracle import SharedFilesOracle

_SLICE_US = 50_000
_LAST_ONES_US = 30_000_000
_QUIET = {"execution.checkpointing.interval": "7 d", "execution.checkpointing.timeout": "2 s"}


class InvariantError(AssertionError):
    """Raised if a run breaks ``rule``."""

    def __init__(self, rule: str, problem: str) -> None:
        self.rule = rule
        super().__init__(f"{rule}: {problem}")


class Watch:
    """Checks all invariants during one run.

    ``records`` is the number of records that a bounded job must commit. ``copies`` has, by source, how often each of
    its records must be committed, if not once. ``is_exact`` is False for at-least-once (INV-6). The state is checked
    (INV-4) only if the job is one path to one counting stage. The output is always checked.
    """

    def __init__(
        self,
        engine: JobEngine,
        *,
        records: int | None = None,
        copies: Mapping[str, int] | None = None,
        is_exact: bool = True,
    ) -> None:
        self.engine = engine
        self.ended_at_us = 0
        self.hash_at_end = ""
        self.checked_bytes = 0
        self.checked_checkpoints = 0
        self.checked_subtasks = 0
        self._records = records
        self._copies = copies or {}
        self._is_exact = is_exact
        self._source_records = SourceRecords(engine)
        self._channels = ChannelOracle(engine, self._broken)
        self._losses = IntendedLosses(engine, self._channels.ahead)
        self._counts = CountingOracle(self._source_records) if _is_counting(engine.spec.graph) else None
        self._measures = MeasurementOracle(engine)
        self.shared_files = SharedFilesOracle(engine)
        self._channel_files = ChannelFilesOracle(engine)
        self._newest_completed = 0
        self._least_restored = 0
        """The newest checkpoint of the run that this one continues: its output is committed (CO-8)."""
        self._newest_triggered = 0
        self._checked: set[int] = set()
        self._restored = -1
        self._timeout_most_us = 0
        self._watermarks: dict[int, int] = {}
        self._snapshotting: dict[tuple[str, int], int] = {}
        self._prepared: dict[str, int] = {}
        self._hang_on()

    def _hang_on(self) -> None:
        coordinator, ledger = self.engine.coordinator, self.engine.ledger
        begin, terminal, told = coordinator.begin, coordinator.on_terminal, self.engine.env.log.listener
        commit, prepare, open_ = ledger.commit, ledger.prepare, ledger.begin

        def begun(tasks: list[Task]) -> None:
            self._check_the_untold()
            begin(tasks)
            self._watermarks.clear()
            self._restored = self.engine.restored_id or 0
            newest = max(self._newest_completed, self._least_restored)
            went_back = f"{self._restored} is restored, but {newest} was complete"
            self._demand("INV-10", self._restored >= newest, went_back)
            self._channels.begin(tasks, self._losses.restored(in_flight_of(self.engine)))

        def ended(record: MeasuredCheckpoint) -> None:
            if terminal is not None:
                terminal(record)
            self._on_terminal(record)

        def happened(checkpoint_id: int, event: BarrierEvent) -> None:
            if told is not None:
                told(checkpoint_id, event)
            self._on_event(checkpoint_id, event)

        def committed(transaction: str) -> None:
            self._on_commit(transaction)
            commit(transaction)

        def prepared(transaction: str) -> None:
            vertex, subtask, _, _ = transaction.rsplit("/", 3)
            self._prepared[transaction] = self._snapshotting[vertex, int(subtask)]
            prepare(transaction)

        def opened(transaction: str) -> None:
            self._losses.began(transaction)
            open_(transaction)

        coordinator.begin = begun
        coordinator.on_terminal = ended
        self.engine.env.log.listener = happened
        ledger.commit = committed
        ledger.prepare = prepared
        ledger.begin = opened

    def take_over(self, before: Watch) -> None:
        """Let all invariants hold over both runs: this one continues that of ``before`` from its saved checkpoint.

        The sink's output and its transactions are those of the external system, which both runs share.
        """
        # The run may have ended right after a crash that kept a complete checkpoint from being reported.
        before._check_the_untold()
        give_rows(self.engine.ledger, before.engine.ledger)
        self._losses.take_over(before._losses)
        self._prepared |= before._prepared
        self._least_restored = before._newest_completed

    # --- during the run -------------------------------------------------------------------------------------------

    def run_until(self, at_us: int, *, slice_us: int = _SLICE_US) -> None:
        """Run the job until ``at_us``. Check the invariants every ``slice_us`` of virtual time."""
        engine = self.engine
        while engine.now_us < at_us:
            try:
                engine.run_until(min(at_us, engine.now_us + slice_us))
            except ProtocolViolationError as error:
                raise InvariantError(f"INV-8 ({error.rule})", f"{self._where}: {error}") from error
            except CorruptCheckpointError as error:
                raise InvariantError("INV-7", f"{self._where}: {error}") from error
            self.look()

    def look(self) -> None:
        """Check the invariants that hold between any two events."""
        engine = self.engine
        if engine.status != "RUNNING":
            return
        try:
            check_books(engine.tasks)
        except AssertionError as error:
            self._broken("INV-8", str(error))
        self._look_at_the_books_of_checkpoints()
        for problem in self._losses.problems_of_the_restart():
            self._broken("INV-15", problem)
        for task in engine.tasks:
            before = self._watermarks.get(id(task), -1)
            self._demand("INV-10", task.watermark_us >= before, f"{task.name}: the watermark went back from {before}")
            self._watermarks[id(task)] = task.watermark_us

    def _look_at_the_books_of_checkpoints(self) -> None:
        coordinator = self.engine.coordinator
        counted = coordinator.completed_count + coordinator.failed_count + coordinator.in_progress_count
        self._demand("INV-9", coordinator.total_count == counted, "some checkpoints are neither pending nor ended")
        self._timeout_most_us = max(self._timeout_most_us, self.engine.config.timeout_us)
        for pending in coordinator._pending.values():
            age_us = self.engine.now_us - pending.record.triggered_at_us
            self._demand("INV-9", age_us <= self._timeout_most_us, f"checkpoint {pending.record.id} never expires")
        kept = [each.record for each in coordinator.completed]
        ids = [record.id for record in kept]
        is_newest = ids == sorted(ids) and max(ids, default=0) >= self._newest_completed
        is_few = len(ids) <= self.engine.config.num_retained and not any(record.is_discarded for record in kept)
        self._demand("INV-7", is_few and is_newest, f"checkpoints {ids} are kept")
        for rule, problem in (*self.shared_files.of_retained(), *self._channel_files.of_retained()):
            self._broken(rule, problem)
        newest = coordinator.history[0].id if coordinator.history else 0
        self._demand("INV-10", newest >= self._newest_triggered, f"checkpoint {newest} after a newer one")
        self._newest_triggered = newest

    def _demand(self, rule: str, holds: bool, problem: str) -> None:
        if not holds:
            self._broken(rule, problem)

    def _broken(self, rule: str, problem: str) -> None:
        raise InvariantError(rule, f"{self._where}: {problem}")

    @property
    def _where(self) -> str:
        return f"{self.engine.spec.name}, seed {self.engine.seed}, at {self.engine.now_us} us"

    def _on_event(self, checkpoint_id: int, event: BarrierEvent) -> None:
        self._measures.on_event(checkpoint_id, event, self._channels.tasks[event.vertex_id, event.subtask])
        if event.kind is BarrierEventKind.SNAPSHOT_SYNC_START:
            self._snapshotting[event.vertex_id, event.subtask] = checkpoint_id
            self.shared_files.on_snapshot(checkpoint_id, self._channels.tasks[event.vertex_id, event.subtask])
            self._channels.on_snapshot(checkpoint_id, (event.vertex_id, event.subtask))

    def _on_commit(self, transaction: str) -> None:
        """Check INV-14 before a transaction is committed. A savepoint commits nothing (CO-8)."""
        coordinator = self.engine.coordinator
        if transaction in self.engine.ledger._committed:
            return
        self._losses.committing(transaction)
        under = self._prepared.get(transaction)
        completed = coordinator.newest.record.id if coordinator.newest is not None else 0
        is_durable = under is None or under <= max(completed, self._restored)
        self._demand(
            "INV-14", is_durable, f"{transaction} of checkpoint {under} is committed, but only {completed} is complete"
        )

    def _on_terminal(self, record: MeasuredCheckpoint) -> None:
        if record.state is not CheckpointState.COMPLETED:
            self._channels.forget(record.id)
            self._measures.forget(record.id)
            self.shared_files.forget(record.id)
            return
        coordinator = self.engine.coordinator
        completed = coordinator.savepoints.get(record.id, coordinator.newest)
        assert completed is not None
        self._check(completed)

    def _check_the_untold(self) -> None:
        """Check completed checkpoints that a crash kept from being reported after they were stored.

        Such a checkpoint counts as complete and is restored.
        """
        coordinator = self.engine.coordinator
        for completed in sorted([*coordinator.completed, *coordinator.savepoints.values()], key=lambda c: c.record.id):
            if completed.record.id not in self._checked:
                self._check(completed)

    def _check(self, completed: Completed) -> None:
        record = completed.record
        self._checked.add(record.id)
        if not record.is_savepoint:
            is_newer = record.id > max(self._newest_completed, self._restored)
            self._demand("INV-10", is_newer, f"checkpoint {record.id} completed after {self._newest_completed}")
            self._newest_completed = record.id
        for rule, problem in self._channels.problems(completed, is_exact=self._is_exact):
            self._broken(rule, problem)
        for rule, problem in self.shared_files.of_completed(completed):
            self._broken(rule, problem)
        ahead = len(self._channels.ahead.get(record.id, []))
        told = record.repeatable_records
        self._demand("INV-15", told == ahead, f"checkpoint {record.id} reports {told} records to repeat, not {ahead}")
        if self._counts is not None:
            doubled, lost = self._losses.by_key(record.id)
            problem = self._counts.problem(completed, doubled=doubled, lost=lost)
            self._demand("INV-4" if self._is_exact else "INV-6", problem is None, problem or "")
        try:
            self.checked_subtasks += self._measures.check(completed.record)
        except AssertionError as error:
            self._broken("INV-11", str(error))
        self.checked_bytes += sum(s.persisted_bytes for s in completed.snapshots.values())
        self.checked_checkpoints += 1

    # --- at the end -----------------------------------------------------------------------------------------------

    def run_to_the_end(self, *, most_us: int = 60_000_000) -> None:
        """Run until every record is committed and some more checkpoints have completed. Then call ``end``."""
        engine = self.engine
        while not self._is_all_committed and engine.now_us < most_us and engine.ended_at_us is None:
            self.run_until(engine.now_us + 100_000)
        self.run_until(engine.now_us + 350_000)
        self.end()

    @property
    def _is_all_committed(self) -> bool:
        assert self._records is not None
        losses = self._losses
        expected = self._records + len(losses.doubled) - len(losses.lost) - losses.late_count
        return self.engine.ledger.committed_count >= expected

    def mark_end(self) -> None:
        """Store the time and the trace hash so far, to compare this run with another run."""
        self.ended_at_us, self.hash_at_end = self.engine.now_us, self.engine.trace_hash

    def end(self) -> None:
        """Stop triggering checkpoints, let pending ones end, and check that they left nothing behind."""
        engine = self.engine
        self.mark_end()
        if engine.ended_at_us is not None:
            self._check_ended()
            return
        engine.set_config(_QUIET)
        self.run_until(engine.now_us + 4_000_000, slice_us=500_000)
        quiet_us = engine.now_us
        # Queued requests start only after the pending checkpoints (CO-3). Their messages may be lost too, so wait
        # longer.
        while engine.coordinator.in_progress_count and engine.now_us < quiet_us + _LAST_ONES_US:
            self.run_until(engine.now_us + 500_000, slice_us=500_000)
        self._demand("INV-9", engine.coordinator.in_progress_count == 0, "a checkpoint neither completes nor fails")
        if engine.ended_at_us is not None:
            self._check_ended()
            return
        for task in engine.tasks:
            if task.status is TaskStatus.FINISHED:
                continue
            for what in _left(task):
                self._broken("INV-9", f"{task.name}: {what}")
            spent = sum(task.account.settle(engine.now_us))
            lived = engine.now_us - task.started_us
            self._demand("INV-11", spent == lived, f"{task.name} accounts for {spent} of {lived} us")
        self._check_store()
        self._check_output(is_whole=True)
        for rule, problem in (*self.shared_files.at_the_end(), *self._channel_files.at_the_end()):
            self._broken(rule, problem)

    def _check_ended(self) -> None:
        """Check a job that has ended. If its sources ended by themselves, everything is committed (FN-32)."""
        engine, config = self.engine, self.engine.config
        if not config.tasks_finish:
            self._check_output(is_whole=False)
            return
        is_finished = engine.status is JobStatus.FINISHED
        stops = [s for s in engine.coordinator.triggering.savepoint_requests.values() if s.kind.is_synchronous]
        if is_finished:
            self._demand(
                "INV-9", engine.coordinator.in_progress_count == 0, "a checkpoint of a finished job is pending"
            )
            for task in engine.tasks:
                self._demand("FN-28", task.status is TaskStatus.FINISHED, f"{task.name} is {task.status.value}")
            self._demand("FN-23", engine.queued_bytes == 0, f"{engine.queued_bytes} bytes are queued in a finished job")
            self._check_store()
            for rule, problem in (*self.shared_files.at_the_end(), *self._channel_files.at_the_end()):
                self._broken(rule, problem)
        is_whole = is_finished and config.checkpoints_after_end and not any(s.completed_at_us for s in stops)
        self._check_output(is_whole=is_whole)

    def _check_store(self) -> None:
        coordinator = self.engine.coordinator
        for kept in [*coordinator.completed, *coordinator.savepoints.values()]:
            stored = kept.stored(kept.record.graph, inline_below_bytes=1)
            named = set(_files(json.loads(stored.metadata)))
            self._demand("INV-7", named == set(stored.files), f"files {named ^ set(stored.files)} belong to nothing")

    def _check_output(self, *, is_whole: bool) -> None:
        """Check the committed rows. If the job ended early (``is_whole`` is False), records may be missing."""
        for problem in self._losses.problems_of_transactions():
            self._broken("INV-15", problem)
        if self._records is None:
            return
        rows = self._losses.rows()
        expected, keys = Counter[int](), dict[int, int]()
        for source, record in self._source_records.of_bounded():
            expected[record.origin] += self._copies.get(source, 1)
            keys[record.origin] = record.key
        expected.update(record.origin for record in self._losses.doubled)
        expected.subtract(record.origin for record in self._losses.lost)
        found = Counter(row.origin for row in rows)
        rule = "INV-5" if self._is_exact else "INV-6"
        missing, surplus = expected - found if is_whole else Counter[int](), found - expected
        problem = f"{missing.total()} records missing and {surplus.total()} too many"
        self._demand(rule, not missing and not surplus, f"{problem}: {[*missing][:3]} and {[*surplus][:3]}")
        if self._is_exact and not self._losses.lost:
            self._demand(rule, all(keys[row.origin] == row.key for row in rows), "records of another key")
            # If the sink itself counts, it must commit the counts of a key in order.
            wrong = _out_of_order(rows if self._counts else sorted(rows, key=lambda row: row.value))
            self._demand(rule, not wrong, f"out of order: keys {wrong}")


def run_to_the_end(spec: JobSpec, *, records: int, copies: Mapping[str, int] | None = None) -> JobEngine:
    """Run a bounded job under all invariants until every record is committed and no checkpoint is pending.

    Raises:
        InvariantError: if the run breaks an invariant.
    """
    engine = JobEngine(spec, keeps_rows=True)
    watch = Watch(engine, records=records, copies=copies, is_exact=spec.config.is_exactly_once)
    watch.run_to_the_end()
    return engine


def _is_counting(graph: Graph) -> bool:
    """Return whether a job is one path from its sources to one counting stage without queues after it (INV-4)."""
    *before, last = graph.vertices
    is_path = all(v.kind in (VertexKind.SOURCE, VertexKind.MAP) and v.fan_out == 1 for v in before)
    return is_path and last.kind in (VertexKind.KEYED_SINK, VertexKind.TIMER_SINK)


def _left(task: Task) -> list[str]:
    """Return descriptions of what a task still holds for checkpoints that have ended (CC-5)."""
    if task.status is not TaskStatus.RUNNING:
        return [f"is {task.status.value}"]
    left = []
    for channel in task.gate.channels:
        left += [f"{channel.key} is blocked"] * channel.subpartition.is_blocked
        left += [f"{channel.key} is closed"] * channel.is_closed
        left += [f"{channel.key} is still copied"] * (channel._write is not None)
        left += [f"{channel.key} has credits of a round"] * (
            isinstance(channel, RemoteChannel) and channel._round != channel._sender_round
        )
    runs = task.checkpointing._snapshots.runs
    left += [f"checkpoint {k} is in work" for k in runs]
    for output in task.outputs:
        waiting = [s._waiting_barrier for s in output.pool.subpartitions if s._waiting_barrier is not None]
        left += [f"barriers {waiting} wait in its output"] * bool(waiting)
    return left


def _files(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        own = [value["file"]] if isinstance(value.get("file"), str) else []
        own += [path for path, *_ in value.get("segments", ())]
        return own + [name for each in value.values() for name in _files(each)]
    return [name for each in value for name in _files(each)] if isinstance(value, list) else []


def _out_of_order(rows: list[Any]) -> list[int]:
    seen: dict[int, int] = {}
    wrong = set()
    for row in rows:
        if row.value != seen.get(row.key, 0) + 1:
            wrong.add(row.key)
        seen[row.key] = row.value
    return sorted(wrong)
