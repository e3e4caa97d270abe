"""Tests of the files by which commands find a running ``up``: only a live one of the same user is found."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from backend.cli import running
from backend.cli.instance import mark_process
from backend.cli.running import RunningUp, announced, chosen, running_ups
from backend.cli.targets import Client
from backend.settings import load_settings

_URL = "http://127.0.0.1:8123"


def _folder(state: Path) -> Path:
    return state / "barrierscope" / "running"


def _leave(state: Path, name: str, up: RunningUp) -> Path:
    _folder(state).mkdir(mode=0o700, parents=True, exist_ok=True)
    file = _folder(state) / name
    file.write_text(json.dumps(asdict(up)))
    file.chmod(0o600)
    return file


def _up(url: str, *, ready_at: float = 1.0, pid: int | None = None) -> RunningUp:
    mark = mark_process("up", os.getpid() if pid is None else pid)
    assert mark is not None
    return RunningUp(url, "/data", ready_at, mark)


def _root() -> str:
    with Client(None) as client:
        return client._root


def test_a_command_finds_the_running_up_whatever_its_port_and_says_so(no_running_up, capsys, monkeypatch):
    monkeypatch.setenv("BARRIERSCOPE_API_TOKEN", "a-token-of-at-least-16-characters")
    with announced(_URL, Path("/some/data"), load_settings()):
        (file,) = _folder(no_running_up).iterdir()
        assert _root() == _URL
        assert "a-token" not in file.read_text()
        assert file.stat().st_mode & 0o777 == 0o600

    assert capsys.readouterr().err == f"using {_URL}: `up`, data in /some/data\n"
    assert not file.exists()
    assert _root() == "http://127.0.0.1:8050"
    assert capsys.readouterr().err == ""


def test_the_newest_of_two_is_used_and_said(no_running_up, capsys):
    _leave(no_running_up, "up-1.json", _up("http://127.0.0.1:1", ready_at=5.0))
    _leave(no_running_up, "up-2.json", _up("http://127.0.0.1:2", ready_at=4.0))

    assert _root() == "http://127.0.0.1:1"
    assert "the newest of 2 running `up` (--api chooses another)" in capsys.readouterr().err


def test_an_address_that_is_given_wins(no_running_up, capsys, monkeypatch):
    _leave(no_running_up, "up-1.json", _up(_URL))

    with Client("http://other:1") as client:
        assert client._root == "http://other:1"
    monkeypatch.setenv("BARRIERSCOPE_API_URL", "http://set:2")
    assert _root() == "http://set:2"
    assert capsys.readouterr().err == ""


def test_an_up_that_was_killed_is_not_found_and_its_file_is_removed_by_the_next(no_running_up):
    gone = _up(_URL)
    gone = RunningUp(gone.url, gone.folder, gone.ready_at, running.ProcessMark("up", 2**22 + 1, "1", "gone"))
    reused = RunningUp(_URL, "/data", 1.0, running.ProcessMark("up", os.getpid(), "0", "another program"))
    files = [_leave(no_running_up, "up-1.json", gone), _leave(no_running_up, "up-2.json", reused)]

    assert running_ups(load_settings()) == []
    with announced(_URL, Path("/data"), load_settings()):
        assert not any(f.exists() for f in files)
        assert [up.url for up in running_ups(load_settings())] == [_URL]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"url": 1}', '{"process": {"pid": 1}}', '{"process": 3}', "\0" * 99])
def test_a_broken_file_is_no_instance(no_running_up, text):
    _leave(no_running_up, "up-1.json", _up(_URL)).write_text(text)

    assert running_ups(load_settings()) == []


def test_a_file_that_somebody_else_may_have_written_is_not_believed(no_running_up, tmp_path):
    file = _leave(no_running_up, "up-1.json", _up(_URL))
    file.chmod(0o666)
    assert running_ups(load_settings()) == []
    file.chmod(0o600)
    assert len(running_ups(load_settings())) == 1
    _folder(no_running_up).chmod(0o777)
    assert running_ups(load_settings()) == []
    _folder(no_running_up).chmod(0o700)
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    assert running_ups(load_settings()) == []


def test_the_run_folder_of_the_user_is_used_if_there_is_one(no_running_up, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with announced(_URL, Path("/data"), load_settings()):
        assert len(list((tmp_path / "barrierscope").iterdir())) == 1
        assert not _folder(no_running_up).exists()
        assert len(running_ups(load_settings())) == 1


def test_an_up_whose_file_cannot_be_written_runs_all_the_same(no_running_up):
    no_running_up.joinpath("barrierscope").write_text("a file where the folder should be")
    with announced(_URL, Path("/data"), load_settings()):
        assert running_ups(load_settings()) == []


def test_of_several_the_newest_with_a_live_runtime_is_chosen_for_a_command_of_it(no_running_up, capsys):
    for number, runtime_url in (
        (1, "http://127.0.0.1:11/runtime/v1"),
        (2, "http://127.0.0.1:12/runtime/v1"),
        (3, None),
    ):
        up = replace(_up(f"http://127.0.0.1:{number}", ready_at=number), runtime_url=runtime_url)
        _leave(no_running_up, f"up-{number}.json", up)

    found = chosen(running_ups(load_settings()), option="--runtime", with_runtime=True)

    assert found is not None
    assert found.runtime_url == "http://127.0.0.1:12/runtime/v1"
    told = capsys.readouterr().err
    assert told.startswith("using http://127.0.0.1:12/runtime/v1: the newest of 2 running `up` (--runtime chooses")


def test_a_file_of_an_older_version_has_no_live_runtime(no_running_up):
    file = _leave(no_running_up, "up-1.json", _up(_URL))
    document = json.loads(file.read_text())
    del document["runtime_url"]
    file.write_text(json.dumps(document))

    (up,) = running_ups(load_settings())

    assert (up.url, up.runtime_url) == (_URL, None)


@pytest.mark.parametrize("runtime_url", ["", [], {}, 7, "127.0.0.1:12"])
def test_a_file_with_an_address_that_is_none_has_no_live_runtime(no_running_up, runtime_url):
    file = _leave(no_running_up, "up-1.json", _up(_URL))
    file.write_text(json.dumps(json.loads(file.read_text()) | {"runtime_url": runtime_url}))

    (up,) = running_ups(load_settings())

    assert (up.url, up.runtime_url) == (_URL, None)


def test_a_file_of_nothing_but_brackets_is_passed_over(no_running_up):
    _leave(no_running_up, "up-1.json", _up(_URL)).write_text("[" * 60_000)

    assert running_ups(load_settings()) == []
