"""A collector that is killed in the middle of a reload changes nothing, and the next one takes the new list."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager

import psycopg
import pytest

from backend.settings import PREFIX
from tests.packaging.wheel_environment import ROOT
from tests.support.waiting import PATIENCE_S, until

_STATE = "SELECT url, labels->>'version', missing_since IS NULL FROM targets WHERE removed_at IS NULL ORDER BY url"
_WAITS = "SELECT count(*) FROM pg_locks WHERE NOT granted"


def _written(folder, numbers, version):
    groups = [{"targets": [f"10.0.0.1:{n}"], "labels": {"version": version}} for n in numbers]
    (folder / "new").write_text(json.dumps(groups))
    os.replace(folder / "new", folder / "list.json")


def _listed(numbers, version):
    return [(f"http://10.0.0.1:{n}", version, True) for n in sorted(numbers)]


@contextmanager
def _collecting(database, folder):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(PREFIX)} | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "backend.cli", "collect", "--targets", str(folder / "targets.yaml")]
    process = subprocess.Popen(
        command, env=environment | {f"{PREFIX}DATABASE_URL": database}, cwd=folder, stderr=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(PATIENCE_S)


@pytest.mark.slow
def test_a_kill_in_the_middle_of_a_reload_leaves_the_list_as_it_was(database, tmp_path):
    section = {"name": "a", "files": ["list.json"], "targets": {"paused": True}}
    (tmp_path / "targets.yaml").write_text(json.dumps({"source": "s", "discovery": {"file_sd": [section]}}))
    before, after = range(101, 141), range(121, 161)
    _written(tmp_path, before, "1")
    with psycopg.connect(database, autocommit=True) as watching, psycopg.connect(database) as holding:

        def state():
            return watching.execute(_STATE).fetchall()

        with _collecting(database, tmp_path) as process:
            until(lambda: state() == _listed(before, "1"), "the first list is stored")
            # The reload comes to this target after it changed twenty others, and has to wait.
            holding.execute("SELECT 1 FROM targets WHERE url = 'http://10.0.0.1:140' FOR UPDATE")
            _written(tmp_path, after, "2")
            until(lambda: watching.execute(_WAITS).fetchone()[0], "the reload waits in the middle")
            process.kill()
            process.wait(PATIENCE_S)
        holding.rollback()
        until(lambda: not watching.execute(_WAITS).fetchone()[0], "the transaction of the killed one is gone")
        assert state() == _listed(before, "1")

        with _collecting(database, tmp_path):
            rest = [(url, "1", False) for url, *_ in _listed(range(101, 121), "1")]
            until(lambda: state() == rest + _listed(after, "2"), "the next collector takes the new list")
