"""With nothing installed but what ``requirements.txt`` pins, every module is importable and a role starts.

The environment of the tests holds more (what the tests themselves need), so a package that only those bring in is
missed by every other test, and missing on a fresh machine.
"""

from __future__ import annotations

import re
import subprocess
import sys

from tests.packaging.wheel_environment import ROOT

# Refuses each top-level module that belongs to distributions of which none is locked.
_ONLY_WHAT_IS_LOCKED = """
import importlib.abc, importlib.metadata, re, sys
locked = set(sys.argv.pop(1).split(","))
name = lambda text: re.sub(r"[-_.]+", "-", text).lower()
owners = importlib.metadata.packages_distributions()
absent = {module for module, of in owners.items() if not locked & {name(o) for o in of}}
class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None):
        if fullname.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {fullname!r}: requirements.txt does not pin it", name=fullname)
sys.meta_path.insert(0, Absent())
assert {"pytest", "hypothesis"} <= absent
"""

_EVERY_MODULE = """
import importlib, pkgutil
for package in ("backend", "collectors", "dashboard"):
    root = importlib.import_module(package)
    for found in pkgutil.walk_packages(root.__path__, package + "."):
        if not found.name.endswith(".__main__"):
            importlib.import_module(found.name)
# What is loaded by name alone, at the first use.
from backend.store.engine import create_store_engine
create_store_engine("postgresql://nobody@127.0.0.1:1/nothing")
"""

_COMMAND = "from backend.cli import main; main()"


def _locked() -> str:
    names = re.findall(r"^([A-Za-z0-9][\w.-]*)(?:\[[\w,-]+\])?==", (ROOT / "requirements.txt").read_text(), re.M)
    return ",".join([*(re.sub(r"[-_.]+", "-", name).lower() for name in names), "barrierscope", "pip"])


def _run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-c", _ONLY_WHAT_IS_LOCKED + script, _locked(), *arguments]
    return subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=300)


def test_every_module_can_be_imported():
    done = _run(_EVERY_MODULE)

    assert done.returncode == 0, done.stderr


def test_a_role_gets_as_far_as_the_server_that_does_not_answer():
    done = _run(_COMMAND, "migrate", "--database-url", "postgresql://nobody@127.0.0.1:1/nothing")

    assert done.returncode == 1
    assert done.stderr.startswith("barrierscope: the store does not answer"), done.stderr
