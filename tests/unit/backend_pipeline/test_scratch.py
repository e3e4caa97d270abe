"""Tests of the scratch folders of Spark: they are removed at the end, and those of killed processes are swept."""

from __future__ import annotations

import os
import subprocess
import sys

from backend.pipeline.scratch import scratch_folder, sweep
from tests.support.waiting import PATIENCE_S


def test_a_folder_exists_within_the_block_only_and_is_not_swept_meanwhile(tmp_path):
    with scratch_folder(tmp_path) as folder:
        (folder / "blocks").mkdir()
        assert sweep(tmp_path) == 0
        assert folder.is_dir()

    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_killed_process_is_removed_by_the_next_one(tmp_path):
    script = (
        "import os, sys; from pathlib import Path; from backend.pipeline.scratch import scratch_folder\n"
        "with scratch_folder(Path(sys.argv[1])) as folder:\n"
        "    (folder / 'blocks').mkdir(); (folder / 'blocks' / 'one').write_text('x'); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], timeout=PATIENCE_S, check=False)
    (left,) = tmp_path.iterdir()

    with scratch_folder(tmp_path) as folder:
        assert list(tmp_path.iterdir()) == [folder]
        assert folder != left


def test_a_folder_without_a_lock_file_is_swept_only_if_it_is_old(tmp_path):
    for name in ("barrierscope-spark-new", "barrierscope-spark-old", "of-another-program"):
        (tmp_path / name).mkdir()
    os.utime(tmp_path / "barrierscope-spark-old", (0, 0))
    os.utime(tmp_path / "of-another-program", (0, 0))

    assert sweep(tmp_path) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["barrierscope-spark-new", "of-another-program"]
