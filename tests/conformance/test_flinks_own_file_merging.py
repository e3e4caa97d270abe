"""Checks that merged files are created, filled, closed and deleted exactly as Flink's own managers do it.

In Flink, these are ``WithinCheckpointFileMergingSnapshotManager`` and ``AcrossCheckpointFileMergingSnapshotManager``
(FM-1 to FM-3). As in ``test_flinks_own_barrier_handler.py``, some of Flink's results are recorded, and ``make
test-flink`` computes many more with Flink's code. ``python -m tests.conformance.test_flinks_own_file_merging JARS``
records the results again.
"""

from __future__ import annotations

import random

from backend.runtime.network.segments import SegmentStore
from backend.runtime.snapshot.merging import FileMerging, LogicalFile, PhysicalFile
from tests.simulators.flink_code import SEQUENCES, FlinksCode, asks_flink, differing

_FLINK = FlinksCode("FileMergingHarness", "file_merging")
_RECORDED_COUNT = 200
_SUBTASKS = 3


def _question(seed: int) -> str:
    """Return random steps: overlapping writes of three subtasks, and notifications that checkpoints ended."""
    rng = random.Random(seed)
    words = [f"{rng.choice('wa')}{rng.choice([1, 20, 60, 1000])}"]
    open_writes: list[int] = []
    ended: list[int] = []
    count, newest = 0, 1
    is_orderly = seed % 2 == 0
    """Whether all subtasks are notified of the end of a checkpoint together."""
    for _ in range(rng.randint(4, 60)):
        checkpoint = rng.randint(max(1, newest - 2), newest)
        match rng.choice("bbbeeeefuucas"):
            case "b":
                words.append(f"b:{count}:{rng.randrange(_SUBTASKS)}:{checkpoint}:{rng.choice('xxxs')}")
                open_writes.append(count)
                count += 1
            case "e" if open_writes:
                write = open_writes.pop(rng.randrange(len(open_writes)))
                words.append(f"e:{write}:{rng.choice([1, 5, 19, 20, 40, 80])}")
                ended.append(write)
            case "f" if open_writes:
                words.append(f"f:{open_writes.pop(rng.randrange(len(open_writes)))}")
            case "u" if ended:
                words.append(f"u:{rng.choice(ended)}:{checkpoint}")
            case "c" | "a" | "s" as what:
                if what == "s":
                    checkpoint = max(1, checkpoint - 1)
                told = range(_SUBTASKS) if is_orderly else [rng.randrange(_SUBTASKS)]
                words += [f"{what}:{subtask}:{checkpoint}" for subtask in told]
                newest += what == "c"
            case _:
                pass
    return " ".join(words)


class _Ours:
    def __init__(self, kind: str) -> None:
        self.store = SegmentStore()
        self._merging = FileMerging(self.store, name="f", is_across=kind[0] == "a", file_bytes_max=int(kind[1:]))
        for subtask in range(_SUBTASKS):
            self._merging.add(subtask)
        self._writes: dict[str, tuple[PhysicalFile, int, int, bool]] = {}
        self._ended: dict[str, LogicalFile] = {}

    def step(self, what: str, *words: str) -> str:
        match what:
            case "b":
                subtask, checkpoint, is_private = int(words[1]), int(words[2]), words[3] == "s"
                file = self._merging.begin(subtask, checkpoint, is_private=is_private)
                self._writes[words[0]] = file, subtask, checkpoint, is_private
                return str(number_of(file.path))
            case "e":
                file, subtask, checkpoint, is_private = self._writes.pop(words[0])
                data = [bytes(int(words[1]))]
                self._ended[words[0]] = self._merging.end(file, subtask, checkpoint, data, is_private=is_private)
            case "f":
                self._merging.fail(self._writes.pop(words[0])[0])
            case "u":
                return "y" if self._merging.reuse(self._ended[words[0]], int(words[1])) else "n"
            case "c":
                self._merging.completed(int(words[0]), int(words[1]))
            case "a":
                self._merging.aborted(int(words[0]), int(words[1]))
            case _:
                self._merging.subsumed(int(words[0]), int(words[1]))
        return "-"


def number_of(path: str) -> int:
    return int(path.rsplit("-", 1)[1]) - 1


def _ours(question: str) -> str:
    kind, *steps = question.split()
    ours, told = _Ours(kind), []
    for step in steps:
        before = ours.store.paths
        done = ours.step(*step.split(":"))
        deleted = sorted(number_of(path) for path in before - ours.store.paths)
        told.append(f"{done}/{','.join(map(str, deleted))}")
    return " ".join(told)


def test_files_are_filled_closed_and_deleted_as_flink_did():
    questions, answers = _FLINK.recorded()

    assert len(questions) == _RECORDED_COUNT
    assert differing(_ours, questions, answers) == []


def test_the_recording_has_every_outcome():
    questions, answers = _FLINK.recorded()
    pairs = [
        (question[0], step, done)
        for question, answer in zip(questions, answers, strict=True)
        for step, done in zip(question.split()[1:], answer.split(), strict=True)
    ]

    for kind in "wa":
        mine = [(step[0], done) for of, step, done in pairs if of == kind]
        assert {step for step, _ in mine} == set("befucas")
        assert {done[0] for step, done in mine if step == "u"} == set("yn")
        for step in "fas":
            assert any(not done.endswith("/") for each, done in mine if each == step), f"{kind}: {step} deletes nothing"


@asks_flink
def test_files_are_filled_closed_and_deleted_as_flinks_code_does(version):
    # Each sequence writes to a real file system, which takes longer than the sequences of the other harnesses.
    questions = [_question(seed) for seed in range(SEQUENCES // 10)]

    wrong = differing(_ours, questions, _FLINK.answers(version, questions))

    assert wrong == [], f"{len(wrong)} of {len(questions)}"


if __name__ == "__main__":
    _FLINK.record(map(_question, range(_RECORDED_COUNT)))
