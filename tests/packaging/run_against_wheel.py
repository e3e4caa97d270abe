"""Run the quick kinds of tests against an installed wheel, in a folder that does not contain the packages.

Usage, from the checkout: python -m tests.packaging.run_against_wheel WHEEL_FOLDER
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.packaging.wheel_environment import ROOT, install_wheel

# The packaging tests are left out, because they need the checkout. Other kinds need a server or much time.
_KINDS = ("unit", "conformance", "e2e/test_cli.py")
_OF_A_CHECKOUT = "not in_a_checkout"


def main() -> int:
    """Install the newest wheel in the folder, run the tests against it, and return pytest's exit code."""
    wheel = max(Path(sys.argv[1]).resolve().glob("barrierscope-*.whl"), key=lambda path: path.stat().st_mtime)
    with tempfile.TemporaryDirectory(prefix="barrierscope-wheel-") as temporary:
        folder = Path(temporary)
        environment = install_wheel(wheel, folder / "environment")
        # Documents are copied as well, because some tests compare them with the installed package.
        for name in ("tests", "docs"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        # This file is copied only for pytest's settings. The folder has no package next to it that could be imported
        # by mistake.
        shutil.copy(ROOT / "pyproject.toml", folder)
        kinds = [f"tests/{kind}" for kind in _KINDS if (folder / "tests" / kind).exists()]
        shell = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        shell["PATH"] = f"{environment.command.parent}{os.pathsep}{shell['PATH']}"
        command = [str(environment.python), "-P", "-m", "pytest", "-q", "-k", _OF_A_CHECKOUT, *kinds]
        return subprocess.run(command, cwd=folder, env=shell, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
