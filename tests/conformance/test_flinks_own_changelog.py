"""Checks that our changelog is cut, uploaded, referred to and deleted exactly as Flink's changelog storage does it.

In Flink, this is ``FsStateChangelogStorage`` with its writer (row 117, IN-7, IN-8). The steps of the random sequences
are changes, checkpoints, ends of uploads, and writes of the whole state. PROTOCOL.md has the differences that this
comparison leaves out. As in ``test_flinks_own_barrier_handler.py``, some of Flink's results are recorded, and ``make
test-flink`` computes many more with Flink's code. ``python -m tests.conformance.test_flinks_own_changelog JARS``
records the results again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

from backend.runtime.core.elements import Alignment, Barrier
from backend.runtime.job.config import RuntimeConfig, StateBackend
from backend.runtime.job.graph import VertexKind, VertexSpec
from backend.runtime.measure.measures import ChannelState, SubtaskCheckpoint, SubtaskSnapshot
from backend.runtime.operators.backends.base import Piece
from backend.runtime.operators.changes import decoded
from backend.runtime.operators.state import KeyedStates, OperatorSnapshot
from backend.runtime.snapshot.shared_files import SharedFiles, registered
from backend.runtime.task.channel_writing import OwnFile
from backend.runtime.task.increments import ContinuousLog, Increments
from backend.runtime.task.snapshots import Run, Snapshots
from tests.simulators.flink_code import SEQUENCES, FlinksCode, asks_flink, differing

_FLINK = FlinksCode("ChangelogHarness", "changelog")
_RECORDED_COUNT = 200
_SMALL_BYTES = 16
_LARGE_BYTES = 2008
"""The size of a change after which Flink's writer uploads at once. Here, the log is then flushed."""


def _question(seed: int) -> str:
    """Return random steps, of which some end with the end of the task, and the others with what remains of the log."""
    rng = random.Random(seed)
    retained = rng.choice([1, 2])
    words = [str(retained)]
    steps = "aaaaffccccuuuuuunnnndMmw" + "x" * (seed % 3 == 0)
    for _ in range(rng.randint(4, 50)):
        match rng.choice(steps):
            case "a":
                words.append(f"a:{_SMALL_BYTES}")
            case "f":
                words.append(f"a:{_LARGE_BYTES}")
            case "u" | "x" as what:
                words.append(f"{what}:{rng.randint(0, 3)}")
            case what:
                words.append(what)
    if seed % 4 == 1:
        return " ".join([*words, "q", "z"])
    written = ["u:0"] * 8
    words += [*written, "n", "m"]
    for _ in range(retained + 1):
        words += [f"a:{_SMALL_BYTES}", "M", "m", f"a:{_SMALL_BYTES}", "c", *written, "n"]
    return " ".join([*words, "z"])


class _Upload:
    def __init__(self, pieces: list[Piece], done: Callable[[object], None], failed: Callable[[object], None]) -> None:
        self.pieces = pieces
        self.done = done
        self.failed = failed


class _RecordingIncrements(Increments):
    """Tells which files the next write consists of."""

    begun: list[Piece]

    def begin(self, pieces: Iterable[Piece], checkpoint_id: int = 0) -> list[Piece]:
        self.begun = super().begin(pieces, checkpoint_id)
        return self.begun


class _Ours:
    """One subtask with its log, and the coordinator's registry.

    ``is_refused`` says whether checkpoints that need a lost segment are refused, as in Flink.
    """

    def __init__(self, retained_max: int, *, is_refused: bool = True) -> None:
        self._is_refused = is_refused
        self._retained_max = retained_max
        self._files = SharedFiles()
        config = RuntimeConfig(state_backend=StateBackend.CHANGELOG, is_incremental=True)
        store = SimpleNamespace(cancel=self._cancelled)
        env: Any = SimpleNamespace(files=self._files, config=config, write=self._write, store=store)
        spec = VertexSpec(id="view", kind=VertexKind.KEYED, name="view")
        self._increments = _RecordingIncrements(env, spec, (0, 0), 0)
        self._task: Any = SimpleNamespace(
            env=env, increments=self._increments, spec=spec, index=0, is_dead=False, cost_us=0
        )
        self._snapshots = Snapshots(self._task, self._given_up, OwnFile(self._task))
        self._log = ContinuousLog(self._task, self._increments)
        self._states = KeyedStates(subtask=0, parallelism=1, max_parallelism=4, backend=self._increments.backend)
        self._small = self._states.value(_SMALL_BYTES - 16)
        self._large = self._states.value(_LARGE_BYTES - 16)
        self._uploads: list[_Upload] = []
        self._whole: _Upload | None = None
        self._is_whole_next = True
        self._started: list[Piece] = []
        self._appended = self._persisted_appended = 0
        self._materializing_appended = self._materialized_appended = 0
        self._pending: tuple[int, Run, OperatorSnapshot] | None = None
        self._is_acknowledged = False
        self._newest_id = 0
        self._retained: list[int] = []
        self._acknowledged: set[str] = set()
        self._written: list[dict[str, str]] = []
        """For each upload that ended: the paths and names of its segments. In Flink, they are one file."""
        self._lost: set[Piece] = set()
        self._checkpoint()
        self._end_whole(is_durable=True)
        self._acknowledge()
        self._complete()

    def told(self, what: str, *words: str) -> str:
        self._started = []
        before = self._existing()
        done = self._step(what, int(words[0]) if words else 0)
        declined = "declined" if done == "declined" else ""
        acknowledgement = declined or self._acknowledge()
        after = [id(group) for group in self._existing()]
        gone = {name for group in before if id(group) not in after for name in group.values()}
        started = {
            _name(piece)
            for piece in self._started
            if piece not in self._lost and _first(_name(piece)) >= self._materialized_appended
        }
        outcome = "-" if declined else done
        return f"{outcome}/{_names(started)}/{acknowledgement}/{_names(gone & self._acknowledged)}"

    def _step(self, what: str, number: int) -> str:
        match what:
            case "a":
                self._append(number)
            case "c" if self._pending is None:
                return self._checkpoint()
            case "u" | "x" if self._uploads:
                return self._end(self._uploads.pop(number % len(self._uploads)), is_durable=what == "u")
            case "n" if self._pending is not None and self._is_acknowledged:
                return self._complete()
            case "d" if self._pending is not None:
                self._abort()
            case "M" if self._whole is None:
                return self._materialize()
            case "m" | "w" if self._whole is not None:
                self._end_whole(is_durable=what == "m")
            case "q":
                self._task.is_dead, self._pending = True, None
                self._increments.close()
                while self._uploads:
                    self._end(self._uploads.pop(0), is_durable=True)
            case "z":
                return _names(self._listed())
            case _:
                pass
        return "-"

    # --- the subtask ----------------------------------------------------------------------------------------------

    def _append(self, size_bytes: int) -> None:
        state = self._large if size_bytes == _LARGE_BYTES else self._small
        state.set(self._appended, 0)
        self._appended += 1
        if size_bytes == _LARGE_BYTES:
            self._log._flush(None)

    def _checkpoint(self) -> str:
        self._newest_id += 1
        k = self._newest_id
        self._persisted_appended = self._appended
        backend: Any = self._increments.backend
        backend.seal()
        if self._is_refused and self._lost.intersection(backend.live):
            return "refused"
        self._increments.prepare(Barrier(k, 0, Alignment.ALIGNED))
        operator = OperatorSnapshot(keyed=self._states.snapshot())
        run = Run(SubtaskCheckpoint(k, 0, 0), 0, 0, 0)
        run.pieces = self._increments.taken(k, [operator])
        self._pending, self._is_acknowledged = (k, run, operator), False
        self._snapshots._write_state(run)
        return "-"

    def _materialize(self) -> str:
        self._is_whole_next = True
        self._log._materialize(None)
        self._is_whole_next = False
        self._materializing_appended = self._appended
        return "nothing" if self._whole is None else "-"

    def _write(
        self, size_bytes: int, done: Callable[[object], None], failed: Callable[[object], None], factor: float
    ) -> _Upload | None:
        upload = _Upload(self._increments.begun, done, failed)
        if self._is_whole_next:
            self._whole = upload
        elif upload.pieces:
            self._uploads.append(upload)
            self._started += upload.pieces
        else:
            done(None)
        return upload

    def _cancelled(self, upload: _Upload) -> None:
        if upload in self._uploads:
            self._uploads.remove(upload)

    def _given_up(self, k: int, reason: object = None) -> None:
        self._abort()

    def _abort(self) -> None:
        assert self._pending is not None
        (k, run, _), self._pending = self._pending, None
        if not self._is_acknowledged:
            self._snapshots.cancel(run)
        self._increments.abort(k)

    def _end(self, upload: _Upload, *, is_durable: bool) -> str:
        done = "-"
        if is_durable:
            upload.done(None)
            if not self._task.is_dead:
                kept = [piece for piece in upload.pieces if piece not in self._lost]
                self._written.append({p.handle.path: _name(p) for p in kept if p.handle is not None})
            return done
        self._lost.update(upload.pieces)
        waiting = (self._pending is not None and not self._is_acknowledged and self._pending[1].pieces) or ()
        if not self._lost.isdisjoint(waiting):
            # Flink declines it. Here, a checkpoint that waits for the write of the log writes the segment again.
            self._abort()
            done = "declined"
        upload.failed(None)
        return done

    def _end_whole(self, *, is_durable: bool) -> None:
        assert self._whole is not None
        upload, self._whole = self._whole, None
        self._is_whole_next = False
        if is_durable:
            self._materialized_appended = self._materializing_appended
            upload.done(None)
        else:
            upload.failed(None)

    # --- the coordinator ------------------------------------------------------------------------------------------

    def _acknowledge(self) -> str:
        if self._pending is None or self._is_acknowledged or self._pending[1].unwritten:
            return ""
        k, run, operator = self._pending
        run.is_over = self._is_acknowledged = True
        operators = self._increments.acknowledged(k, (operator,))
        snapshot = registered(SubtaskSnapshot(operators, ChannelState(), -1, 0, 0), k, self._files)
        increment = snapshot.operators[0].increment
        assert increment is not None
        segments = increment.files[1:]
        names = {_name_of(self._files.content(handle)) for handle in segments}
        self._acknowledged |= names
        return f"{_names(names)}={sum(handle.size_bytes for handle in segments)}"

    def _complete(self) -> str:
        assert self._pending is not None
        (k, _, _), self._pending = self._pending, None
        self._retained = [*self._retained, k][-self._retained_max :]
        self._files.registry.unregister_unused(self._retained[0])
        self._increments.confirm(k)
        return "complete"

    def _listed(self) -> set[str]:
        """Return the segments of the existing files, as the harness names them at the end."""
        groups = [set(group.values()) for group in self._existing()]
        if self._task.is_dead:
            taken = self._persisted_appended
            groups = [g for g in groups if g & self._acknowledged or min(map(_first, g)) >= taken]
        return set().union(*groups)

    def _existing(self) -> list[dict[str, str]]:
        paths = self._files.paths
        return [group for group in self._written if not paths.isdisjoint(group)]


def _name(piece: Piece) -> str:
    return _name_of(piece.content)


def _name_of(content: bytes) -> str:
    """Return the first and the last change of a segment."""
    keys = sorted(change.key for change in decoded(content))
    assert keys == list(range(keys[0], keys[-1] + 1))
    return f"{keys[0]}-{keys[-1]}"


def _first(name: str) -> int:
    return int(name.partition("-")[0])


def _names(names: Iterable[str]) -> str:
    return ",".join(sorted(names, key=_first))


def _ours(question: str) -> str:
    retained, *steps = question.split()
    ours = _Ours(int(retained))
    return " ".join(ours.told(*step.split(":")) for step in steps)


def _differing(questions: Sequence[str], answers: Sequence[str]) -> list[str]:
    """Compare up to the step at which Flink's task fails (PROTOCOL.md), if it does."""
    asked, told = [], []
    for question, answer in zip(questions, answers, strict=True):
        steps = answer.split(" ")
        is_failed = steps[-1] == "failed"
        count = len(steps) - is_failed
        asked.append(" ".join(question.split()[: 1 + count]))
        told.append(" ".join(steps[:count]))
    return differing(_ours, asked, told)


def test_the_log_is_cut_uploaded_and_deleted_as_flink_did():
    questions, answers = _FLINK.recorded()

    assert len(questions) == _RECORDED_COUNT
    assert _differing(questions, answers) == []


def test_the_recording_has_every_outcome():
    questions, answers = _FLINK.recorded()
    pairs = [
        (step[0], *done.split("/"))
        for question, answer in zip(questions, answers, strict=True)
        for step, done in zip(question.split()[1:], answer.split(" "), strict=False)
        if done != "failed"
    ]

    def counted(what: str, part: int) -> int:
        return sum(bool(each[part]) for each in pairs if each[0] == what)

    assert {each[0] for each in pairs} == set("acuxndMmwqz")
    assert {each[1] for each in pairs if each[0] == "c"} == {"-", "refused"}
    assert {each[1] for each in pairs if each[0] == "M"} == {"-", "nothing"}
    assert any(each[3] == "declined" for each in pairs)
    for what in "ac":
        assert any("," in each[2] for each in pairs if each[0] == what), f"{what}: no upload has two segments"
    assert counted("c", 3) > 10
    assert counted("u", 3) > 10
    assert counted("n", 4) > 10


def test_a_lost_segment_is_written_again_where_flink_refuses_the_checkpoint():
    ours = _Ours(1, is_refused=False)

    told = [ours.told(*step.split(":")) for step in f"a:{_SMALL_BYTES} c x:0 c u:0 n".split()]

    assert told[2:] == ["-//declined/", "-///", f"-//0-0={_SMALL_BYTES}/", "complete///"]


@asks_flink
def test_the_log_is_cut_uploaded_and_deleted_as_flinks_code_does(version):
    # Each sequence writes to a real file system, which takes longer than the sequences of the other harnesses.
    questions = [_question(seed) for seed in range(SEQUENCES // 10)]

    wrong = _differing(questions, _FLINK.answers(version, questions))

    assert wrong == [], f"{len(wrong)} of {len(questions)}"


if __name__ == "__main__":
    _FLINK.record(map(_question, range(_RECORDED_COUNT)))
