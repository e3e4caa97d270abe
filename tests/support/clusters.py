"""Functions for data folders of the embedded PostgreSQL: copy a folder, or run a server over it in another process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
_START = (
    "import sys; from backend.store.postgres.embedded import EmbeddedPostgres; server = EmbeddedPostgres(sys.argv[1]); "
)


def copy_cluster(made: Path, to: Path) -> Path:
    """Copy the data folder of a stopped server, including owners and modes."""
    subprocess.run(["cp", "-a", str(made), str(to)], check=True, timeout=PATIENCE_S)
    return to


@contextmanager
def python_with_server(
    folder: Path,
    then: str,
    *,
    interpreter: Sequence[str] = (sys.executable,),
    environment: Mapping[str, str] | None = None,
    user: int | None = None,
) -> Iterator[subprocess.Popen[str]]:
    """Run the statements ``then`` in another Python process, and yield the process.

    In these statements, ``server`` is an embedded server over ``folder`` that is not started yet.
    """
    process = subprocess.Popen(
        [*interpreter, "-c", _START + then, str(folder)],
        cwd="/",
        env=dict(os.environ) | {"PYTHONPATH": str(ROOT)} | dict(environment or {}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **({} if user is None else {"user": user, "group": user, "extra_groups": []}),  # type: ignore[call-overload]
    )
    with process:
        try:
            yield process
        finally:
            process.kill()
