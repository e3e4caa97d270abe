"""Which rows of zeros are those of finished subtasks, by the number of subtasks that had ended."""

from __future__ import annotations

from typing import Any

import pytest

from backend.contracts import flink
from backend.domain.ids import EngineRunId, VertexId
from collectors.flink.details import read_subtasks
from collectors.flink.document import Document
from collectors.flink.reading import RunMemory

pytestmark = pytest.mark.anyio
VERTEX = VertexId("b" * 32)
JOB = EngineRunId("a" * 32)
TRIGGERED_MS = 1_760_000_000_000


def row(index: int, ack_ms: int) -> dict[str, Any]:
    return {
        "index": index,
        "className": "completed",
        "ack_timestamp": TRIGGERED_MS + ack_ms,
        "end_to_end_duration": ack_ms,
        "checkpointed_size": 0,
        "state_size": 0,
        "checkpoint": {"sync": 0, "async": 0},
        "alignment": {"buffered": 0, "processed": 0, "persisted": 0, "duration": 0},
        "start_delay": 0,
        "unaligned_checkpoint": False,
    }


class Answers:
    """Answers requests as Flink does. ``ended`` is the number of subtasks of the vertex that have ended."""

    def __init__(self, ended: int, acks_ms: list[int]) -> None:
        rows = [row(i, ms) for i, ms in enumerate(acks_ms)]
        self.asked: list[str] = []
        self._answers: dict[str, Any] = {
            flink.job(JOB): {"vertices": [{"id": VERTEX, "tasks": {"RUNNING": 2 - ended, "FINISHED": ended}}]},
            flink.checkpoint_subtasks(JOB, 7, VERTEX): {
                "id": 7,
                "status": "COMPLETED",
                "num_subtasks": len(rows),
                "subtasks": rows,
            },
        }

    async def find(self, path: str) -> Document | None:
        self.asked.append(path)
        return Document(self._answers[path], "http://flink") if path in self._answers else None


async def finished(answers: Answers, memory: RunMemory) -> list[bool]:
    answer = await read_subtasks(answers, memory, JOB, 7, VERTEX)  # type: ignore[arg-type]
    assert answer is not None
    return [answer.detail.has_finished(i) for i in range(2)]


@pytest.mark.parametrize("ack_ms", [0, 2, 40])
async def test_subtasks_that_have_ended_are_recognized_however_late_flink_planned_the_checkpoint(ack_ms: int) -> None:
    answers, memory = Answers(2, [ack_ms, ack_ms]), RunMemory()

    assert await finished(answers, memory) == [True, True]
    assert await finished(answers, memory) == [True, True]
    assert answers.asked.count(flink.job(JOB)) == 1, "the job is read again only if too few had ended before"


async def test_running_subtasks_without_state_on_a_machine_whose_clock_is_behind_have_not_finished() -> None:
    assert await finished(Answers(0, [3, 3]), RunMemory()) == [False, False]


async def test_one_of_two_has_ended() -> None:
    assert await finished(Answers(1, [1, 9]), RunMemory()) == [True, False]


async def test_a_detail_that_is_gone_is_none() -> None:
    assert await read_subtasks(Answers(0, []), RunMemory(), JOB, 8, VERTEX) is None  # type: ignore[arg-type]
