"""Tests of parsing Flink's responses: sentinels become None, and an error names the wrong field and its position."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest

from backend.domain.checkpoint import CheckpointHeader, CheckpointKind, CheckpointStatus, RestoredFrom
from backend.domain.errors import TargetProtocolError
from backend.domain.failure import FailureReason
from backend.domain.ids import VertexId
from backend.domain.observation import JobState
from backend.domain.topology import Topology
from collectors.flink import parse, subtask_columns
from collectors.flink.document import Document

TRIGGERED_MS = 1_795_218_627_942
ENTRY: dict[str, Any] = {
    "className": "completed",
    "id": 17,
    "status": "COMPLETED",
    "is_savepoint": False,
    "trigger_timestamp": TRIGGERED_MS,
    "latest_ack_timestamp": TRIGGERED_MS + 2975,
    "checkpointed_size": 5365,
    "state_size": 9365,
    "end_to_end_duration": 2975,
    "alignment_buffered": 0,
    "processed_data": 52498,
    "persisted_data": 0,
    "num_subtasks": 12,
    "num_acknowledged_subtasks": 12,
    "checkpoint_type": "CHECKPOINT",
    "tasks": {},
    "external_path": "file:/c/chk-17",
    "discarded": False,
}


def document(value: object) -> Document:
    return Document(value, "http://flink/x")


def header(**changes: object) -> CheckpointHeader:
    return parse.header(document(ENTRY | changes))


def test_a_completed_checkpoint_has_its_reported_values() -> None:
    found = header()
    assert (found.status, found.kind, found.is_unaligned) == (
        CheckpointStatus.COMPLETED,
        CheckpointKind.CHECKPOINT,
        False,
    )
    assert found.checkpointed_size_bytes == 5365
    assert found.full_state_size_bytes == 9365
    assert found.end_to_end_duration_ms == 2975
    assert found.persisted_bytes == 0


def before_1_15(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row as Flink sent it before 1.15."""
    found = {key: value for key, value in row.items() if key not in ("checkpointed_size", "className")}
    return found | {"@class": row["className"]}


def test_before_1_15_the_state_size_is_what_the_checkpoint_wrote_and_the_full_size_is_missing() -> None:
    found = parse.header(document(before_1_15(ENTRY)))
    assert (found.checkpointed_size_bytes, found.full_state_size_bytes) == (9365, None)


def test_before_1_15_a_savepoint_has_its_full_size() -> None:
    entry = before_1_15(ENTRY) | {"is_savepoint": True, "checkpoint_type": "SAVEPOINT"}
    found = parse.header(document(entry))
    assert (found.checkpointed_size_bytes, found.full_state_size_bytes) == (9365, 9365)


@pytest.mark.parametrize(
    ("version", "is_named"),
    [("1.13.6", False), ("1.15.4", False), ("1.16.0", True), ("2.3.0", True), ("1.2-SNAPSHOT", False), ("own", True)],
)
def test_the_type_of_a_checkpoint_names_unaligned_ones_since_1_16(version: str, is_named: bool) -> None:
    info = parse.engine_info(document({"flink-version": version}))
    found = parse.header(document(ENTRY), names_unaligned=info.names_unaligned)
    assert found.is_unaligned is (False if is_named else None)


@pytest.mark.parametrize(
    ("flags", "status", "is_unaligned"),
    [
        ((True, False), "COMPLETED", True),
        ((False, False), "COMPLETED", False),
        ((False, False), "FAILED", None),
        ((True, False), "FAILED", True),
    ],
)
def test_a_mode_that_the_type_does_not_name_is_that_of_the_subtasks(
    flags: tuple[bool, bool], status: str, is_unaligned: bool | None
) -> None:
    unnamed = parse.header(document(ENTRY | {"status": status}), names_unaligned=False)
    detail = answered(*(subtask(n, unaligned_checkpoint=flag) for n, flag in enumerate(flags))).detail
    assert parse.with_mode(unnamed, [detail]).is_unaligned is is_unaligned


def test_without_acknowledgements_size_and_latest_acknowledgement_are_missing() -> None:
    found = header(
        status="IN_PROGRESS", num_acknowledged_subtasks=0, latest_ack_timestamp=-1, checkpointed_size=0, state_size=0
    )
    assert (found.latest_ack_at, found.checkpointed_size_bytes, found.full_state_size_bytes) == (None, None, None)
    assert (found.processed_bytes, found.persisted_bytes) == (None, None)


def test_a_checkpoint_in_progress_has_no_duration_yet() -> None:
    assert header(status="IN_PROGRESS").end_to_end_duration_ms is None


@pytest.mark.parametrize("value", [-1, 2**31, 2**62])
def test_an_impossible_duration_is_missing(value: int) -> None:
    assert header(end_to_end_duration=value).end_to_end_duration_ms is None


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("Checkpoint expired before completing.", FailureReason.EXPIRED),
        ("Asynchronous task checkpoint failed.", FailureReason.ASYNC_FAILURE),
    ],
)
def test_a_failure_has_its_reason_and_message(message: str, reason: FailureReason) -> None:
    found = header(status="FAILED", failure_message=message, failure_timestamp=TRIGGERED_MS + 3001)
    assert (found.failure_reason, found.failure_message) == (reason, message)
    assert found.failed_at == found.triggered_at + timedelta(milliseconds=3001)


def test_a_failure_without_a_message_is_a_failure() -> None:
    found = header(status="FAILED")
    assert found.failure_message is None
    assert found.failed_at is None


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"is_savepoint": True, "checkpoint_type": "SAVEPOINT"}, CheckpointKind.SAVEPOINT),
        ({"is_savepoint": True, "checkpoint_type": "SYNC_SAVEPOINT"}, CheckpointKind.SYNC_SAVEPOINT),
    ],
)
def test_savepoints_differ_from_checkpoints(changes: dict[str, object], kind: CheckpointKind) -> None:
    assert header(**changes).kind is kind


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"status": "DONE"}, "status is 'DONE', one of IN_PROGRESS, COMPLETED, FAILED is needed"),
        ({"id": "17"}, "id is the text '17', a whole number is needed"),
        ({"id": -4}, "id is -4, a count is needed"),
        ({"id": True}, "id is true, a whole number is needed"),
        ({"trigger_timestamp": -1}, "trigger_timestamp is -1, milliseconds since the epoch are needed"),
        ({"trigger_timestamp": 2**60}, "trigger_timestamp is 1152921504606846976, milliseconds"),
        ({"num_subtasks": None}, "the answer has no 'num_subtasks'"),
    ],
)
def test_a_wrong_field_is_named_with_the_expected_type(changes: dict[str, object], words: str) -> None:
    with pytest.raises(TargetProtocolError) as caught:
        header(**changes)
    assert words in str(caught.value)
    assert str(caught.value).startswith("http://flink/x: ")


def subtask(index: int, **changes: object) -> dict[str, Any]:
    return {
        "index": index,
        "className": "completed",
        "ack_timestamp": TRIGGERED_MS + 2000 + index,
        "end_to_end_duration": 2000 + index,
        "checkpointed_size": 10,
        "state_size": 20,
        "checkpoint": {"sync": 0, "async": 3},
        "alignment": {"buffered": 0, "processed": 7, "persisted": 0, "duration": 5},
        "start_delay": 1900,
        "unaligned_checkpoint": False,
        "aborted": False,
    } | changes


def answered(*rows: dict[str, Any], count: int | None = None) -> parse.SubtasksAnswer:
    body = {"id": 17, "status": "COMPLETED", "num_subtasks": count or len(rows), "subtasks": list(rows)}
    return parse.subtasks(document(body), VertexId("v"))


def test_a_pending_or_unlisted_subtask_has_no_values() -> None:
    answer = answered(subtask(0), {"index": 1, "className": "pending"}, subtask(3), count=4)
    detail = answer.detail
    assert detail.ack_delay_ms == (2000, None, None, 2003)
    assert detail.sync_duration_ms == (0, None, None, 0)
    assert detail.pending == (1, 2)


_NOTHING: dict[str, Any] = {
    "checkpointed_size": 0,
    "state_size": 0,
    "checkpoint": {"sync": 0, "async": 0},
    "alignment": {"buffered": 0, "processed": 0, "persisted": 0, "duration": 0},
    "start_delay": 0,
}


def zeros(index: int, ack_ms: int, **changes: object) -> dict[str, Any]:
    times = {"ack_timestamp": TRIGGERED_MS + ack_ms, "end_to_end_duration": ack_ms}
    return subtask(index, **_NOTHING | times | changes)


def test_zeros_are_those_of_a_finished_subtask_if_no_subtask_acknowledged_earlier() -> None:
    answer = answered(zeros(0, 2), zeros(1, 2), zeros(2, 3), {"index": 3, "className": "pending"})
    assert answer.finished_count == 2
    assert [answer.detail.has_finished(i) for i in range(4)] == [True, True, False, False]
    assert answer.detail.ack_delay_ms == (0, 0, 3, None)
    assert answer.detail.start_delay_ms == (None, None, 0, None)


@pytest.mark.parametrize("field", ["start_delay", "state_size", "checkpointed_size"])
def test_a_subtask_that_measured_something_had_not_finished(field: str) -> None:
    assert answered(zeros(0, 2, **{field: 1}), zeros(1, 2)).finished_count == 1


def test_rows_of_flink_before_1_15_are_read_with_the_bytes_written_and_without_the_full_size() -> None:
    detail = answered(before_1_15(subtask(0)), {"index": 1, "@class": "pending"}).detail
    assert detail.ack_delay_ms == (2000, None)
    assert detail.checkpointed_size_bytes == (20, None)
    assert detail.full_state_size_bytes == (None, None)


def test_before_1_15_finished_subtasks_are_recognized_without_a_full_size() -> None:
    answer = answered(before_1_15(zeros(0, 2)), before_1_15(zeros(1, 2)), before_1_15(zeros(2, 3)))
    assert answer.finished_count == 2
    assert answer.detail.ack_delay_ms == (0, 0, 3)


@pytest.mark.parametrize("field", ["start_delay", "unaligned_checkpoint"])
def test_a_value_that_old_versions_do_not_send_is_missing(field: str) -> None:
    row = before_1_15(subtask(0))
    del row[field], row["alignment"]["processed"], row["alignment"]["persisted"]
    detail = answered(row).detail
    assert (detail.processed_bytes, detail.persisted_bytes) == ((None,), (None,))
    assert (detail.start_delay_ms if field == "start_delay" else detail.unaligned) == (None,)


def test_minus_one_is_missing_and_zero_stays_zero() -> None:
    odd = subtask(0, checkpoint={"sync": -1, "async": 0}, alignment={"processed": -1, "persisted": -1, "duration": -1})
    detail = answered(odd).detail
    assert (detail.sync_duration_ms, detail.async_duration_ms) == ((None,), (0,))
    assert (detail.processed_bytes, detail.persisted_bytes, detail.alignment_duration_ms) == ((None,), (None,), (None,))


def test_a_detail_belongs_to_a_checkpoint_only_if_the_trigger_times_agree() -> None:
    assert answered(subtask(0), subtask(1)).is_of(header())
    assert not answered(subtask(0)).is_of(header(trigger_timestamp=TRIGGERED_MS + 1))
    assert not answered(subtask(0)).is_of(header(id=18))
    # No subtask has acknowledged, so no value contradicts the trigger time.
    assert answered({"index": 0, "className": "pending"}).is_of(header())


@pytest.mark.parametrize("index", [-1, 4, 10**9])
def test_a_subtask_outside_the_vertex_is_an_error(index: int) -> None:
    with pytest.raises(TargetProtocolError, match="there are 4 subtasks"):
        answered(subtask(index), count=4)


def test_an_impossible_parallelism_is_an_error_and_takes_no_memory() -> None:
    with pytest.raises(TargetProtocolError, match="at most 32768 subtasks"):
        answered(subtask(0), count=10**12)


@pytest.mark.parametrize("job_id", ["", "../x", "A" * 32, "a" * 31, 7, None, "a" * 32 + "\n"])
def test_an_invalid_id_is_never_used_in_a_path(job_id: object) -> None:
    row = {"jid": job_id, "name": "j", "state": "RUNNING", "start-time": 1, "end-time": -1, "duration": 1}
    with pytest.raises(TargetProtocolError):
        parse.jobs_overview(document({"jobs": [row | {"last-modification": 1}]}))


@pytest.mark.parametrize("word", ["INITIALIZING", "CREATED", "RECONCILING"])
def test_a_job_that_does_not_run_yet_is_starting(word: str) -> None:
    row = {"jid": "a" * 32, "name": "j", "state": word, "start-time": 1, "end-time": -1, "duration": 1}
    (entry,) = parse.jobs_overview(document({"jobs": [row | {"last-modification": 1}]}))
    assert entry.state is JobState.STARTING
    assert entry.engine_state == word


@pytest.mark.parametrize(
    ("duration_ms", "changed_at_ms", "unchanged_ms"),
    [
        (60_000, 41_000, 20_000),
        (-1, 41_000, 0),
        (60_000, 71_000, 0),
        (2**63 - 1, 41_000, 0),
        (60_000, -(2**63), 0),
        (60_000, 2**63 - 1, 0),
    ],
)
def test_how_long_no_task_changed_is_zero_if_the_row_cannot_tell(
    duration_ms: int, changed_at_ms: int, unchanged_ms: int
) -> None:
    row = {"jid": "a" * 32, "name": "j", "state": "RUNNING", "start-time": 1_000, "end-time": -1}
    row |= {"duration": duration_ms, "last-modification": changed_at_ms}
    (entry,) = parse.jobs_overview(document({"jobs": [row]}))
    assert entry.unchanged_for == timedelta(milliseconds=unchanged_ms)


def test_the_empty_plan_of_a_job_that_starts_is_a_graph_without_edges() -> None:
    assert parse.topology(document({"vertices": [], "plan": {}})) == Topology(())


_RESTORED = {"id": 7, "restore_timestamp": 1, "is_savepoint": True, "external_path": "file:/c/savepoint-7"}
_LONG_PATH = f"s3://bucket/{'folder/' * 120}{'a' * 32}/chk-7"
_OF_OTHER = {"job-name": "orders", "kind": "native savepoint", "is-claimed": False, "left-out-operators": ["a:keyed"]}


@pytest.mark.parametrize(
    ("restored", "expected"),
    [
        (None, None),
        ({"restore_timestamp": 1}, None),
        (_RESTORED, RestoredFrom(7, True, "file:/c/savepoint-7")),
        (
            _RESTORED | _OF_OTHER,
            RestoredFrom(7, True, "file:/c/savepoint-7", "orders", "native savepoint", False, ("a:keyed",)),
        ),
        (_RESTORED | {"job-name": " ", "kind": ""}, RestoredFrom(7, True, "file:/c/savepoint-7")),
        (
            _RESTORED | {"left-out-operators": [f"o{n}" for n in range(103)]},
            RestoredFrom(7, True, "file:/c/savepoint-7", left_out=tuple(f"o{n}" for n in range(100)), left_out_more=3),
        ),
        (_RESTORED | {"external_path": _LONG_PATH}, RestoredFrom(7, True, _LONG_PATH)),
    ],
)
def test_what_a_run_was_restored_from_is_read_if_it_is_reported(restored: object, expected: object) -> None:
    counts = {"restored": 1, "total": 0, "in_progress": 0, "completed": 0, "failed": 0}
    answer = {"counts": counts, "latest": {"restored": restored, "completed": None}, "history": []}
    assert parse.checkpoints(document(answer)).counts.restored_from == expected


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"kind": 5}, "kind"),
        ({"is-claimed": "yes"}, "is-claimed"),
        ({"left-out-operators": [None]}, "left-out-operators[0]"),
        ({"left-out-operators": "all"}, "left-out-operators"),
        ({"external_path": 7}, "external_path"),
        ({"id": "3"}, "id"),
        ({"is_savepoint": "false"}, "is_savepoint"),
    ],
)
def test_an_origin_that_cannot_be_read_is_a_problem_and_the_rest_of_the_answer_is_kept(
    changes: dict[str, object], field: str
) -> None:
    counts = {"restored": 1, "total": 4, "in_progress": 0, "completed": 0, "failed": 0}
    answer = {"counts": counts, "latest": {"restored": _RESTORED | changes, "completed": None}, "history": []}
    found = parse.checkpoints(document(answer))
    assert (found.counts.total, found.restored_ms, found.counts.restored_from) == (4, 1, None)
    (problem,) = found.problems
    assert f"latest.restored.{field} is " in problem


def test_the_path_of_a_checkpoint_is_kept_as_long_as_a_path_can_be() -> None:
    assert header(external_path=_LONG_PATH).external_path == _LONG_PATH


def _graph(vertices: str, edges: str, **of_vertex: object) -> Topology:
    """Parse a graph of vertices that have one letter each, listed in this order, with edges such as ``ab``."""
    ids = {letter: letter * 32 for letter in "abcde"}
    inputs: dict[str, list[dict[str, object]]] = {letter: [] for letter in vertices}
    for source, target in edges.split():
        inputs[target].append({"id": ids[source], "ship_strategy": "HASH"})
    body = {
        "vertices": [{"id": ids[v], "name": f"vertex {v}", "parallelism": 2} | of_vertex for v in vertices],
        "plan": {"nodes": [{"id": ids[v], "inputs": inputs[v]} for v in vertices]},
    }
    return parse.topology(document(body))


@pytest.mark.parametrize(
    ("vertices", "edges", "order", "kept"),
    [
        ("dcba", "ab bc cd", "abcd", "ab bc cd"),
        ("dbca", "ab ac bd cd", "abcd", "ab ac bd cd"),
        ("edcba", "cd ab de", "cadbe", "cd ab de"),
        # Flink has no cycles. An edge that closes one is left out, because a verdict would follow it for ever.
        ("abc", "ab bc cb", "abc", "ab bc"),
        ("ab", "aa ab", "ab", "ab"),
    ],
)
def test_vertices_are_in_topological_order_whatever_their_order_in_the_answer(
    vertices: str, edges: str, order: str, kept: str
) -> None:
    found = _graph(vertices, edges)

    assert "".join(v.id[0] for v in found.vertices) == order
    assert [f"{e.source[0]}{e.target[0]}" for e in found.edges] == kept.split()


@pytest.mark.parametrize(("given", "wanted"), [(None, None), (-1, None), (0, 0), (128, 128)])
def test_a_highest_parallelism_that_is_not_reported_or_negative_is_not_known(
    given: int | None, wanted: int | None
) -> None:
    of_vertex = {} if given is None else {"maxParallelism": given}

    assert [v.max_parallelism for v in _graph("ab", "ab", **of_vertex).vertices] == [wanted, wanted]


def settings(**changes: object) -> Any:
    body = {
        "mode": "exactly_once",
        "interval": 5000,
        "timeout": 600_000,
        "min_pause": 0,
        "max_concurrent": 1,
        "unaligned_checkpoints": False,
        "aligned_checkpoint_timeout": 0,
        "tolerable_failed_checkpoints": 3,
    }
    return parse.checkpoint_config(document(body | changes))


def test_an_aligned_timeout_of_zero_means_at_once_or_not_applicable() -> None:
    assert settings().aligned_timeout_ms is None
    assert settings(unaligned_checkpoints=True).aligned_timeout_ms == 0


@pytest.mark.parametrize("value", [2**63 - 1, 0, -1])
def test_an_interval_that_means_never_is_none(value: int) -> None:
    assert settings(interval=value).interval_ms is None


def test_an_interval_without_end_means_that_checkpointing_is_off() -> None:
    assert settings(interval=2**63 - 1).is_off is True
    assert settings().is_off is None


def test_whether_checkpoints_end_with_the_first_task_is_read_if_it_is_reported() -> None:
    assert settings(checkpoints_after_tasks_finish=False).ends_with_first_task is True
    assert settings(checkpoints_after_tasks_finish=True).ends_with_first_task is None
    assert settings().ends_with_first_task is None


@pytest.mark.parametrize(("kind", "is_batch"), [("BATCH", True), ("STREAMING", None)])
def test_a_job_in_batch_mode_is_told_by_its_plan(kind: str, is_batch: bool | None) -> None:
    body = {"vertices": [], "plan": {"type": kind, "nodes": []}}
    assert parse.topology(document(body)).is_batch is is_batch
    assert parse.topology(document({"vertices": [], "plan": {"nodes": []}})).is_batch is None


_ODD_VALUES = (-1, -7, 0, 2**31, 2**63 - 1, 2**63, -(2**63), True, None, "5", 1.5, [], {})


@pytest.mark.parametrize("seed", range(300))
def test_reading_all_rows_at_once_gives_what_reading_them_one_by_one_gives(seed: int) -> None:
    rnd = random.Random(seed)
    count = rnd.randrange(1, 6)
    rows = [subtask(n, start_delay=rnd.randrange(9)) for n in range(count)]
    if rnd.random() < 0.3:
        rows = [before_1_15(row) for row in rows]
    rnd.shuffle(rows)
    for _ in range(rnd.randrange(3)):
        row = rnd.choice(rows)
        part = row.get(rnd.choice(["checkpoint", "alignment"])) if rnd.random() < 0.4 else row
        if not isinstance(part, dict) or not part:
            continue
        name = rnd.choice(sorted(part))
        if rnd.random() < 0.2:
            del part[name]
        else:
            part[name] = rnd.choice(_ODD_VALUES)
        if rnd.random() < 0.3:
            name = rnd.choice(["className", "@class"])
            rows[rnd.randrange(count)] = {"index": rnd.randrange(count), name: "pending"}
    body = document({"rows": rows}).get("rows")

    def one_by_one() -> object:
        try:
            return subtask_columns.checked_columns_of(body, count)
        except TargetProtocolError as error:
            return str(error)

    expected, found = one_by_one(), subtask_columns.columns_of(body.array(), count)
    # A result of None leaves the decision to the slower reader, which checks each value.
    assert found is None or found == expected, f"seed={seed}: {rows}"


def test_rows_as_flink_sends_them_are_read_all_at_once() -> None:
    rows = [subtask(2), {"index": 0, "className": "pending"}, subtask(1, start_delay=-1)]

    assert subtask_columns.columns_of(rows, 3) == subtask_columns.checked_columns_of(document(rows), 3)
    old = [before_1_15(row) for row in rows]
    assert subtask_columns.columns_of(old, 3) == subtask_columns.checked_columns_of(document(old), 3)
