"""Play back what ``make test-versions --record`` kept: the answers of one Flink version to ``diagnose``, for many jobs.

The format is that of ``recorded_flink``. One recording holds the jobs of one cluster. ``run.json`` says for each job
its id and when the first reading of it was complete.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from collectors import diagnose
from collectors.diagnosis_print import Answer
from tests.support.recorded_flink import Answer as Response
from tests.support.recorded_flink import RecordedFlink, recording

FOLDER = Path(__file__).resolve().parent.parent / "contract" / "recordings_clusters"


class RecordedVersion:
    """The recording of one version."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def jobs(self) -> dict[str, dict[str, Any]]:
        """Return for each job its id and when it was read."""
        found: dict[str, dict[str, Any]] = recording(self.folder).run["jobs"]
        return found

    async def diagnosed(self, job: str) -> Answer:
        """Run ``diagnose`` on one job. The pauses between its readings take no time."""
        told = self.jobs[job]
        flink = _Cluster(self.folder, told["read_s"])

        async def sleep(seconds: float) -> None:
            flink.at_s += seconds

        return await diagnose.answer_of(
            flink, job=told["id"], show_step=lambda text: None, clock=flink.clock, sleep=sleep
        )


class _Cluster(RecordedFlink):
    """A recorded cluster whose own settings are in the recording."""

    @property
    def clock(self) -> _Clock:
        return _Clock(self)

    def _recorded(self, path: str) -> Response:
        # This recording has the requests of a collector, with their queries.
        found = None if "?get=" in path else self.recording.last(path, self.at_s)
        return found or super()._recorded(path)

    def _cluster_settings(self) -> Any:
        found = self.recording.last("/jobmanager/config", self.at_s)
        return [] if found is None else found[1]


class _Clock:
    def __init__(self, flink: RecordedFlink) -> None:
        self.now = lambda: flink.now
        self.monotonic_s = flink.monotonic_s


def versions() -> list[str]:
    """Return the recorded versions, oldest first."""
    names = [path.name for path in FOLDER.iterdir()] if FOLDER.is_dir() else []
    return sorted(names, key=lambda name: [int(part) for part in name.split(".")])
