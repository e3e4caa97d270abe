"""Builds the wheel, and installs it into an environment that imports nothing from the checkout.

The new environment uses the dependencies of the tests' environment. A line in a ``.pth`` file adds the
site-packages of that environment, but not the paths in its ``.pth`` files. The editable install is therefore
not importable.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]

_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input")


@dataclass(frozen=True, slots=True)
class Environment:
    """The paths of the environment in which the wheel is installed."""

    python: Path
    command: Path
    site: Path


def build_wheel(folder: Path) -> Path:
    """Build the wheel from the checkout into ``folder``, without network access, and return its path."""
    _run(*_PIP, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "-w", str(folder), str(ROOT))
    (wheel,) = folder.glob("barrierscope-*.whl")
    return wheel


def install_wheel(wheel: Path, folder: Path) -> Environment:
    """Create an environment in ``folder`` and install the wheel. Its dependencies come from the current environment."""
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    _run(*_PIP, "--python", str(python), "install", "--quiet", "--no-deps", "--no-index", str(wheel))
    (site,) = (folder / "lib").glob("python*/site-packages")
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return Environment(python=python, command=folder / "bin" / "barrierscope", site=site)


def _run(*command: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
