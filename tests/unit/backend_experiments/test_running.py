"""Every row is kept, and an experiment that was killed continues where it stopped."""

from __future__ import annotations

import pytest

from backend.domain.errors import HostError
from backend.experiments import running
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
