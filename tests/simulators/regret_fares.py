"""Runs of a drawn job under settings, kept on disk: the grid runs once, and choosers that changed are judged again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path

import backend
from tests.simulators import regret_jobs
from tests.simulators.regret_jobs import Drawn, Fare, fare


@cache
def digest() -> str:
    """Return a digest of the code on which runs depend: the runtime, and the jobs."""
    seen = hashlib.blake2b(digest_size=8)
    runtime = Path(backend.__file__).parent / "runtime"
    for path in (*sorted(runtime.rglob("*.py")), Path(regret_jobs.__file__)):
        seen.update(path.read_bytes())
    return seen.hexdigest()


class Fares:
    """The runs of one job. ``folder`` keeps them, if it is given; runs of other code are made again."""

    def __init__(self, job: Drawn, folder: Path | None = None) -> None:
        self._job = job
        self._path = None if folder is None else folder / f"{job.name.replace('/', '-')}.json"
        self._found: dict[str, Fare] = {}
        if self._path is not None and self._path.exists():
            document = json.loads(self._path.read_text(encoding="utf-8"))
            if document["code"] == digest():
                self._found = {key: Fare(**row) for key, row in document["runs"].items()}

    def of(self, settings: Mapping[str, str], *, seed: int, run_s: float | None = None) -> Fare:
        """Return what the job loses under settings: from disk, or from a run that is made now."""
        key = json.dumps([sorted(settings.items()), seed, run_s])
        if key not in self._found:
            self._found[key] = fare(self._job, settings, seed=seed, run_s=run_s)
        return self._found[key]

    def keep(self) -> None:
        """Write all runs to the folder."""
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        document = {"code": digest(), "runs": {key: asdict(found) for key, found in self._found.items()}}
        part = self._path.with_suffix(".part")
        part.write_text(json.dumps(document), encoding="utf-8")
        part.replace(self._path)
