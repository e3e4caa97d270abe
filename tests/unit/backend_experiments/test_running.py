"""Every row is kept, and an experiment that was killed continues where it stopped."""

from __future__ import annotations

import multiprocessing
import os
import signal
from dataclasses import replace

import pytest

from backend.domain.errors import HostError
from backend.experiments import running
from backend.experiments.catalog import EXPERIMENTS
from backend.experiments.model import Experiment, Row
from backend.experiments.running import ROWS_FILE, kept_rows, run, units_of


class _Stopped(Exception):
    pass


@pytest.fixture
def tries(monkeypatch):
    """Return a toy experiment, and the list of the runs that began."""
    began = []

    def one(task, seed, ratio):
        began.append((task, seed))
        return [Row("ms", task, "", seed, seed + ratio, "ms")]

    toy = Experiment("toy", "Toy", "A toy.", ("a", "b"), one)
    monkeypatch.setitem(running.EXPERIMENTS, "toy", toy)
    return toy, began


def _stop_after(count):
    left = iter(range(count - 1))

    def on_end():
        if next(left, None) is None:
            raise _Stopped

    return on_end


def test_a_stopped_experiment_goes_on_with_the_runs_that_are_left(tries, tmp_path):
    toy, began = tries
    with pytest.raises(_Stopped), kept_rows(tmp_path, "toy") as kept:
        run(toy, kept, seeds=2, processes=1, on_end=_stop_after(3))
    # The process was killed while it wrote the line of the third run.
    file = tmp_path / ROWS_FILE
    file.write_bytes(file.read_bytes()[:-4])

    with kept_rows(tmp_path, "toy") as kept:
        assert len(kept.by_unit) == 2
        rows = run(toy, kept, seeds=2, processes=1)

    assert began == [("a", 0), ("b", 0), ("a", 1), ("a", 1), ("b", 1)]
    assert rows == [Row("ms", task, "", seed, seed + 1.0, "ms") for seed in (0, 1) for task in ("a", "b")]
    with kept_rows(tmp_path, "toy") as kept:
        assert run(toy, kept, seeds=2, processes=1) == rows
        assert run(toy, kept, seeds=1, processes=1) == rows[:2]


@pytest.mark.parametrize("damaged", [b"\0\0", b"{}", b"[1]", b'{"task": "a", "seed": 0, "rows": [{"measure": "ms"}]}'])
def test_a_run_whose_line_is_damaged_is_done_again(tries, tmp_path, damaged):
    toy, began = tries
    with kept_rows(tmp_path, "toy") as kept:
        rows = run(toy, kept, seeds=1, processes=1)
    file = tmp_path / ROWS_FILE
    head, _, *others = file.read_bytes().split(b"\n")
    file.write_bytes(b"\n".join([head, damaged, *others]))

    with kept_rows(tmp_path, "toy") as kept:
        assert run(toy, kept, seeds=1, processes=1) == rows
    assert began == [("a", 0), ("b", 0), ("a", 0)]


def test_rows_of_other_code_or_of_another_experiment_are_not_mixed(tries, tmp_path, monkeypatch):
    with kept_rows(tmp_path, "toy"):
        pass
    with pytest.raises(HostError, match="another experiment"), kept_rows(tmp_path, "other"):
        pass
    monkeypatch.setattr(running, "code_digest", lambda: "of tomorrow")
    with pytest.raises(HostError, match="--out"), kept_rows(tmp_path, "toy"):
        pass


def test_two_processes_do_not_write_into_one_folder(tries, tmp_path):
    with kept_rows(tmp_path, "toy"), pytest.raises(HostError, match="another process"), kept_rows(tmp_path, "toy"):
        pass


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(HostError, match="--out"), kept_rows(tmp_path / "file" / "x", "toy"):
        pass


def test_the_first_runs_are_of_all_tasks(tries):
    assert [(u.task, u.seed) for u in units_of(tries[0], 2)] == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]


# --- several processes ------------------------------------------------------------------------------------------------


def _killed_after_the_first_run(before):
    """Return a function that kills the processes of the experiment, and the list of those that it killed."""
    killed = []

    def on_end():
        for process in set(multiprocessing.active_children()) - before:
            os.kill(process.pid, signal.SIGKILL)
            killed.append(process)

    return on_end, killed


def test_a_killed_process_is_one_error_that_names_its_run_and_the_same_command_continues(tmp_path):
    markers = EXPERIMENTS["chandy-lamport"]
    on_end, killed = _killed_after_the_first_run(set(multiprocessing.active_children()))
    with kept_rows(tmp_path, markers.name) as kept:
        with pytest.raises(HostError) as raised:
            run(markers, kept, seeds=2, processes=2, on_end=on_end)
        ended = len(kept.by_unit)

    assert len(killed) >= 2
    assert 1 <= ended < 8
    assert "was killed (SIGKILL)" in str(raised.value)
    assert f"{ended} of 8 runs are kept; the same command continues" in str(raised.value)
    assert any(f"{unit.task!r} with seed {unit.seed}" in str(raised.value) for unit in units_of(markers, 2))
    with kept_rows(tmp_path, markers.name) as kept:
        rows = run(markers, kept, seeds=2, processes=2)
    assert rows == [row for unit in units_of(markers, 2) for row in markers.run(unit.task, unit.seed, 1.0)]


def test_an_interrupted_experiment_leaves_no_process(tmp_path):
    markers = EXPERIMENTS["chandy-lamport"]
    before = set(multiprocessing.active_children())

    def on_end():
        assert len(set(multiprocessing.active_children()) - before) == 2
        raise KeyboardInterrupt

    with kept_rows(tmp_path, markers.name) as kept, pytest.raises(KeyboardInterrupt):
        run(markers, kept, seeds=2, processes=2, on_end=on_end)
    assert set(multiprocessing.active_children()) <= before
    with kept_rows(tmp_path, markers.name) as kept:
        assert len(kept.by_unit) == 1


def test_a_run_that_fails_is_named_with_its_traceback(tmp_path):
    broken = replace(EXPERIMENTS["chandy-lamport"], tasks=("aligned", "no such protocol"))
    with kept_rows(tmp_path, broken.name) as kept, pytest.raises(RuntimeError, match=r"(?s)no such protocol.*KeyError"):
        run(broken, kept, seeds=1, processes=2)
