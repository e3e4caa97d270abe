"""The folder of compiled code: another source gets another folder, and old folders go."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from backend.advisor.twin.fast import compiled_cache
from tests.packaging.wheel_environment import ROOT

_CODE = Path(compiled_cache.__file__).parent
_DAY_S = 86_400


@pytest.fixture(autouse=True)
def _own_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.delenv(compiled_cache.CACHE_VARIABLE, raising=False)


def _copy(tmp_path: Path) -> Path:
    code = tmp_path / "code"
    code.mkdir()
    for file in _CODE.glob("*.py"):
        shutil.copy(file, code)
    return code


def test_a_change_of_any_compiled_file_and_another_compiler_give_another_folder(tmp_path: Path):
    code = _copy(tmp_path)
    before = compiled_cache.digest_of(code, "1.0")
    files = [code / name for name in compiled_cache.SOURCES]
    found = {before, compiled_cache.digest_of(code, "1.1")}

    for file in files:
        text = file.read_text()
        file.write_text(text + "#\n")
        found.add(compiled_cache.digest_of(code, "1.0"))
        file.write_text(text)

    assert len(files) >= 5
    assert len(found) == len(files) + 2
    assert compiled_cache.digest_of(code, "1.0") == before
    (code / "throughput.py").write_text("")
    assert compiled_cache.digest_of(code, "1.0") == before


def test_the_compiled_files_are_all_of_which_compiled_code_consists():
    """Every module of ours that a compiled file imports is compiled too, so the digest has it."""
    package, imported = compiled_cache.__package__, set()
    for source in compiled_cache.SOURCES:
        for node in ast.walk(ast.parse((_CODE / source).read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("backend"):
                assert node.module is not None
                names = [a.name for a in node.names] if node.module == package else [node.module.split(".")[-1]]
                imported |= {f"{name}.py" for name in names}

    assert imported
    assert imported <= set(compiled_cache.SOURCES)
    compiled = {file.name for file in _CODE.glob("*.py") if "@compiled" in file.read_text()}
    assert compiled
    assert compiled <= set(compiled_cache.SOURCES)


@pytest.mark.slow
def test_code_of_an_earlier_source_is_not_loaded_after_a_change_of_another_file(tmp_path: Path):
    """The fault itself, with numba: the entry function stays, and a function in another file changes."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "whole.py").write_text(
        "from part import part\nimport numba\n\n@numba.njit(cache=True)\ndef run():\n    return part()\n"
    )
    ask = (
        "import sys; sys.path[:0] = sys.argv[2:]\n"
        "from pathlib import Path\n"
        "from backend.advisor.twin.fast import compiled_cache\n"
        "compiled_cache._CODE, compiled_cache.SOURCES = Path(sys.argv[2]), ('part.py', 'whole.py')\n"
        "compiled_cache.choose()\n"
        "from whole import run\n"
        "print(run(), sum(run.stats.cache_hits.values()))"
    )

    def answer(value: int) -> list[str]:
        (code / "part.py").write_text(f"import numba\n\n@numba.njit\ndef part():\n    return {value}\n")
        given = [sys.executable, "-c", ask, "-", str(code), str(ROOT)]
        environment = {**os.environ, compiled_cache.CACHE_VARIABLE: str(tmp_path / "cache"), "PYTHONPATH": ""}
        # Python's own cache takes a file of the same size and second for unchanged.
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
        done = subprocess.run(given, check=True, capture_output=True, text=True, env=environment)
        return done.stdout.split()

    assert answer(1) == ["1", "0"]
    assert answer(2) == ["2", "0"]
    assert answer(2) == ["2", "1"]


def test_folders_of_other_sources_go_once_they_are_no_longer_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(compiled_cache.CACHE_VARIABLE, str(tmp_path))
    old, other = (f"{compiled_cache.PREFIX}{digit * 16}" for digit in "a0")
    kept = {other, "twin_of_others", "barrierscope-demo-x1y2", f"{old}0", "barrierscope-numba-abcdefgh"}
    for name, age_days in ((old, 8), *((name, 6 if name == other else 30) for name in kept)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.nbc").touch()
        seen_s = (tmp_path / name).stat().st_mtime - age_days * _DAY_S
        os.utime(tmp_path / name, (seen_s, seen_s))

    compiled_cache.choose()

    used = Path(numba.config.CACHE_DIR)
    assert used.is_dir()
    assert {f.name for f in tmp_path.iterdir()} == {used.name, *kept}
    long_ago_s = used.stat().st_mtime - 30 * _DAY_S
    os.utime(used, (long_ago_s, long_ago_s))
    compiled_cache.choose()
    assert used.stat().st_mtime > long_ago_s


def test_compiled_code_gets_a_folder_of_its_own_if_no_usual_one_can_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(compiled_cache.os, "access", lambda *_: False)
    monkeypatch.setattr(compiled_cache.tempfile, "mkdtemp", lambda **kwargs: str(tmp_path / f"{kwargs['prefix']}x"))
    monkeypatch.setattr(compiled_cache.atexit, "register", lambda *_, **__: None)
    find = compiled_cache.own_root.__wrapped__
    made = find()
    monkeypatch.setattr(compiled_cache, "own_root", lambda: made)

    compiled_cache.choose()

    assert Path(numba.config.CACHE_DIR).parent == tmp_path / "barrierscope-numba-x"
    monkeypatch.setenv(compiled_cache.CACHE_VARIABLE, "/elsewhere")
    assert find() is None


@pytest.mark.parametrize("is_code_writable", [True, False])
def test_compiled_code_is_kept_beside_the_code_or_in_the_cache_of_the_user(
    is_code_writable: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    def can_write(folder: Path, _: int) -> bool:
        return is_code_writable or folder != _CODE

    monkeypatch.setattr(compiled_cache.os, "access", can_write)
    monkeypatch.setattr(compiled_cache, "own_root", compiled_cache.own_root.__wrapped__)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    compiled_cache.choose()

    parent = Path(numba.config.CACHE_DIR).parent
    assert parent == (_CODE / "__pycache__" if is_code_writable else tmp_path / "barrierscope")
