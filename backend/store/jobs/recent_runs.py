"""Remembers what this process last wrote to each run, so that the next write of the run needs no look-up.

A remembered run may be outdated, because another process has written it since. So a write that relies on it also states
the version of the row that it expects, and fails if the row has another one. Every write to a run or to its
checkpoints writes the row of the run, so that the version also covers the checkpoints.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from backend.domain.checkpoint import CheckpointHeader
from backend.domain.observation import JobObservation, Observation
from backend.store.checkpoints.writer import (
    CheckpointPlan,
    HeaderKey,
    StoredHeader,
    StoredHeaders,
    StoredRun,
    header_key,
)
from backend.store.jobs.writer import LastWrite, Report, RunToWrite, TargetKey, stored_run_id

_RUNS_MAX = 10_000
# Flink lists 10 ended checkpoints of a run and the open ones, so this many headers suffice.
_HEADERS_MAX = 32


@dataclass(frozen=True, slots=True)
class _Recent:
    """A run as this process wrote it last, with its newest headers. ``deployment`` is that of its target."""

    deployment: str
    last: LastWrite
    headers: Mapping[HeaderKey, StoredHeader]
    newest_id: int | None

    def precedes(self, observation: Observation, job: JobObservation) -> bool:
        """Whether ``observation`` is newer, and each of the job's checkpoints is either remembered or new."""
        is_newer = (
            observation.observed_at > self.last.row["observed_at"] and job.started_at >= self.last.row["started_at"]
        )
        return is_newer and all(self._is_known(c.header) for c in job.checkpoints)

    def _is_known(self, header: CheckpointHeader) -> bool:
        is_new = self.newest_id is not None and header.checkpoint_id > self.newest_id
        return is_new or header_key(self.last.row["id"], header) in self.headers


@dataclass(frozen=True, slots=True)
class RecentWrite:
    """What a write needs to know of its runs, as this process remembers it. The runs are in the order of their ids."""

    runs: Sequence[RunToWrite]
    headers: StoredHeaders


class RecentRuns:
    """The runs that this process has written, at most ``runs_max`` of them."""

    def __init__(self, *, runs_max: int = _RUNS_MAX) -> None:
        self._runs_max = runs_max
        self._runs: OrderedDict[str, _Recent] = OrderedDict()

    def known(self, observations: Sequence[Observation]) -> RecentWrite | None:
        """Return what is remembered of the observed runs, or None if the write must look anything up.

        Graphs, settings, readings of backpressure and channel events need a look-up. So do an observation that is
        not the newest, an unknown run, and checkpoints that may be stored but are not remembered.
        """
        runs: dict[str, RunToWrite] = {}
        headers: dict[HeaderKey, StoredHeader] = {}
        for observation in observations:
            for job in observation.jobs:
                key = stored_run_id(observation.target_id, observation.engine, job)
                recent = self._runs.get(key)
                if recent is None or key in runs or not _is_plain(job) or not recent.precedes(observation, job):
                    return None
                target = TargetKey(observation.target_id, recent.deployment, observation.engine)
                report = Report(target, job, observation.observed_at, observation.clock_offset_ms)
                stored = StoredRun(run_id=key, job_id=recent.last.row["job_id"])
                runs[key] = RunToWrite(report, stored, recent.last.row, True, recent.last)
                headers |= recent.headers
        return RecentWrite([runs[key] for key in sorted(runs)], headers)

    def note(self, runs: Sequence[RunToWrite], written: Mapping[str, LastWrite], plan: CheckpointPlan) -> None:
        """Remember a committed write of these runs and their checkpoints. Forget the runs that are not ``written``."""
        after: dict[str, dict[HeaderKey, StoredHeader]] = {}
        for key, header in plan.after.items():
            after.setdefault(key[0], {})[key] = header
        for run in runs:
            run_id = run.key.run_id
            before, last = self._runs.pop(run_id, None), written.get(run_id)
            if last is None or (run.report.place is not None and run.report.place.is_shared):
                # What is written next to a run with several channels depends on what the others reported.
                continue
            headers = after.get(run_id, {})
            ids = [number for _, number, _ in headers]
            if before is not None:
                # The headers that were written last come last, so that the oldest ones are dropped first.
                headers = {k: v for k, v in before.headers.items() if k not in headers} | headers
                ids += [] if before.newest_id is None else [before.newest_id]
            kept = dict(islice(headers.items(), max(0, len(headers) - _HEADERS_MAX), None))
            self._runs[run_id] = _Recent(run.report.target.deployment, last, kept, max(ids, default=None))
        while len(self._runs) > self._runs_max:
            self._runs.popitem(last=False)

    def forget(self, runs: Iterable[RunToWrite]) -> None:
        """Forget these runs."""
        for run in runs:
            self._runs.pop(run.key.run_id, None)


def _is_plain(job: JobObservation) -> bool:
    return job.topology is None and job.config is None and not job.pressure and not job.barriers
