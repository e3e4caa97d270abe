"""What Barrierscope's collector read of a job on a real Flink, kept in a small file: the evidence for the twin.

``benchmarks/fidelity/record_twin.py`` records them. The folder ``tests/conformance/flink_running/twin`` contains one
gzip file of JSON for each run. ``pairs`` lists which run predicts which.
"""

from __future__ import annotations

import gzip
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

from pydantic import TypeAdapter

from backend.advisor.twin.asking.changes import WhatIf
from backend.analysis.measures.evidence import JobEvidence
from backend.domain.advice import Mode
from backend.domain.checkpoint import Checkpoint, CheckpointStatus
from backend.domain.pressure import VertexPressure
from tests.simulators.fidelity import WARM_UP_SHARE, Medians

FOLDER = Path(__file__).parents[1] / "conformance" / "flink_running" / "twin"
READINGS_MAX = 16
"""The number of readings of one vertex that a file keeps. They are evenly spread over the run."""
_DEBLOAT_ENABLED = "taskmanager.network.memory.buffer-debloat.enabled"
_DEBLOAT_TARGET = "taskmanager.network.memory.buffer-debloat.target"


_BEFORE_S = 4
_SILENT_S = 2.5
"""The lag is read about every second. A longer gap shows that the last stage did not run."""
_SLACK_MS = 250
_KILL_TAKES_S = 2.0


@dataclass(frozen=True, slots=True)
class Recovery:
    """One recovery. ``killed_s`` is seconds after the start, the other times are seconds after the kill.

    ``since_s`` is the time from the trigger of the last completed checkpoint until the kill; None if there is none.
    ``back_s`` is when the last stage ran again, and ``caught_up_s`` when its records were as young as in the 4 s
    before the first kill. ``lag_max_ms`` is the largest age of a record in between.
    """

    killed_s: float
    since_s: float | None
    back_s: float
    caught_up_s: float
    lag_max_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One run of ``FidelityJob`` on a real Flink.

    ``name`` is the name of the run in ``twin_runs``. ``cluster`` contains the network settings of the cluster and
    ``lab.taskmanagers``, the number of its TaskManagers. ``is_store_slow`` says that the checkpoints went to a store of
    8 MB/s. ``load_1min`` is the mean load of the machine, which has ``core_count`` cores.
    """

    name: str
    flink: str
    arguments: Mapping[str, str]
    cluster: Mapping[str, str]
    is_store_slow: bool
    started_at: datetime
    seconds: float
    load_1min: float
    core_count: int
    evidence: JobEvidence
    kills_s: tuple[float, ...] = ()
    """When a TaskManager was killed, in seconds after ``started_at``."""
    lags: tuple[tuple[float, float], ...] = ()
    """The largest age of a record at the last stage, over its subtasks: (seconds after ``started_at``, milliseconds).

    A log that grows at a steady rate gives each record its age. While the job restarts there are no values.
    """

    @property
    def warm_at(self) -> datetime:
        """The end of the warm-up. Checkpoints that were triggered earlier do not count in ``medians``."""
        return self.started_at + timedelta(seconds=self.seconds * WARM_UP_SHARE)

    @property
    def middle_s(self) -> float:
        """The middle of the time after the warm-up, in seconds after the start."""
        return self.seconds * (1 + WARM_UP_SHARE) / 2

    @property
    def mode(self) -> Mode:
        """The checkpoint mode of the run."""
        if self.arguments["unaligned"] != "true":
            return Mode.ALIGNED
        is_timed = self.arguments.get("aligned-timeout", "0ms") != "0ms"
        return Mode.ALIGNED_WITH_TIMEOUT if is_timed else Mode.UNALIGNED

    def counted(self) -> tuple[Checkpoint, ...]:
        """Return the completed checkpoints that were triggered after the warm-up, oldest first."""
        return tuple(
            c
            for c in self.evidence.checkpoints
            if c.header.status is CheckpointStatus.COMPLETED and c.header.triggered_at >= self.warm_at
        )

    @property
    def medians(self) -> Medians:
        """The medians over the checkpoints that count, and the records that the last vertex read per second of the run.

        Start delay and alignment are the longest of all subtasks in each checkpoint.
        """
        counted = self.counted()
        return Medians(
            end_to_end_ms=_median(c.header.end_to_end_duration_ms for c in counted),
            start_delay_ms=_median(_largest(v for d in c.details for v in d.start_delay_ms) for c in counted),
            alignment_ms=_median(_largest(v for d in c.details for v in d.alignment_duration_ms) for c in counted),
            persisted_bytes=_median(c.header.persisted_bytes for c in counted),
            records_per_s=_records_per_s(self),
        )

    def recoveries(self) -> tuple[Recovery, ...]:
        """Return how the job recovered from each kill.

        A kill is left out if the job had not caught up before it, or did not until the next one.
        """
        found: list[Recovery] = []
        limit_ms: float | None = None
        for killed_s, until_s in pairwise((*self.kills_s, self.seconds)):
            before = [lag for at, lag in self.lags if killed_s - _BEFORE_S <= at < killed_s]
            limit_ms = limit_ms or max(before, default=0.0) + _SLACK_MS
            if not before or before[-1] > limit_ms:
                continue
            back_s, fresh = self._after(killed_s, until_s)
            caught_s = next((at for at, lag in fresh if lag <= limit_ms), None)
            if back_s is not None and caught_s is not None:
                worst = max(lag for at, lag in fresh if at <= caught_s)
                since_s = self._since_checkpoint_s(killed_s, back_s)
                found.append(Recovery(killed_s, since_s, back_s - killed_s, caught_s - killed_s, worst))
        return tuple(found)

    def _after(self, killed_s: float, until_s: float) -> tuple[float | None, list[tuple[float, float]]]:
        """Return when the last stage ran again after a kill, and the lags of the new attempt.

        Flink serves the last lag before the kill until the new attempt reports its own, also after the silence.
        """
        later = [(at, lag) for at, lag in self.lags if killed_s - _SILENT_S < at < until_s]
        for (last_at, old_ms), (back_s, _) in pairwise(later):
            if back_s - last_at > _SILENT_S:
                served = [(at, lag) for at, lag in later if at >= back_s]
                old_count = next((n for n, (_, lag) in enumerate(served) if lag != old_ms), len(served))
                return back_s, served[old_count:]
        return None, []

    def _since_checkpoint_s(self, killed_s: float, back_s: float) -> float | None:
        """Return the seconds from the trigger of the checkpoint that was restored until the kill.

        The kill takes a moment, so a checkpoint that was triggered in that moment may be the one.
        """
        triggered = [
            (c.header.triggered_at - self.started_at).total_seconds()
            for c in self.evidence.checkpoints
            if c.header.status is CheckpointStatus.COMPLETED
        ]
        before = [at for at in triggered if at < min(killed_s + _KILL_TAKES_S, back_s)]
        return max(0.0, killed_s - max(before)) if before else None


_JSON = TypeAdapter(Recording)


def write(recording: Recording, folder: Path = FOLDER) -> Path:
    """Write a recording to its file in ``folder``, without paths of the machine. Return the path of the file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{recording.name}-{recording.flink}.json.gz"
    content = _JSON.dump_json(replace(recording, evidence=_thinned(recording.evidence)))
    # The same recording gives the same file.
    path.write_bytes(gzip.compress(content, mtime=0))
    return path


def read(path: Path) -> Recording:
    """Read one recording. Raises ``pydantic.ValidationError`` if the file has another form."""
    return _JSON.validate_json(gzip.decompress(path.read_bytes()))


def read_all(folder: Path = FOLDER) -> dict[tuple[str, str], Recording]:
    """Read all recordings, by the name of the run and the version of Flink."""
    found = map(read, sorted(folder.glob("*.json.gz")))
    return {(r.name, r.flink): r for r in found}


def _thinned(evidence: JobEvidence) -> JobEvidence:
    checkpoints = tuple(replace(c, header=replace(c.header, external_path=None)) for c in evidence.checkpoints)
    readings: dict[str, list[VertexPressure]] = {}
    for reading in evidence.pressure:
        readings.setdefault(reading.vertex_id, []).append(reading)
    kept = sorted(
        (reading for of in readings.values() for reading in _spread(of, READINGS_MAX)), key=lambda r: r.observed_at
    )
    return replace(evidence, checkpoints=checkpoints, pressure=tuple(kept))


def _spread(readings: Sequence[VertexPressure], count_max: int) -> Iterator[VertexPressure]:
    """Yield at most ``count_max`` of the readings, with the first and the last one."""
    if len(readings) <= count_max:
        yield from readings
        return
    step = (len(readings) - 1) / (count_max - 1)
    yield from (readings[round(n * step)] for n in range(count_max))


def _records_per_s(recording: Recording) -> float | None:
    vertex = recording.evidence.topology.vertices[-1]
    at_s, read = [], []
    for reading in recording.evidence.pressure:
        counts = [n for n in reading.records_in_count if n is not None]
        is_complete = len(counts) == vertex.parallelism
        if reading.vertex_id == vertex.id and is_complete and any(counts):
            at_s.append((reading.observed_at - recording.started_at).total_seconds())
            read.append(sum(counts))
    # Flink serves counts that are up to some seconds old. A line through all readings of the run depends less on their
    # ages than the readings after the warm-up do.
    return round(statistics.linear_regression(at_s, read).slope, 1) if len(read) > 1 else None


def _largest(values: Iterable[int | None]) -> int | None:
    return max((v for v in values if v is not None), default=None)


def _median(values: Iterable[int | None]) -> float | None:
    known = [v for v in values if v is not None]
    return statistics.median(known) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two runs that differ by ``what_if``: ``base`` is known, and the twin predicts ``changed``."""

    base: Recording
    changed: Recording
    what_if: WhatIf = field(default_factory=WhatIf)


def pairs(recordings: Iterable[Recording]) -> Iterator[Pair]:
    """Yield every pair of runs of one version whose difference is one that a what-if can describe."""
    runs = list(recordings)
    for base in runs:
        for changed in runs:
            if base.flink == changed.flink and (found := what_if(base, changed)) is not None:
                yield Pair(base=base, changed=changed, what_if=found)


def what_if(base: Recording, changed: Recording) -> WhatIf | None:
    """Return the what-if that turns one run into the other; None if there is none, or if more than one thing differs.

    Skew and slow hosts can be removed only.
    """
    if base.is_store_slow != changed.is_store_slow:
        return None
    mine, theirs = {**base.cluster, **base.arguments}, {**changed.cluster, **changed.arguments}
    # These say how the run was made, and not what the job is.
    ignored = {"taskmanager.numberOfTaskSlots", "slow-host-file"}
    names = {name for name in mine | theirs if mine.get(name) != theirs.get(name)} - ignored
    if names and names <= {"unaligned", "aligned-timeout"}:
        timeout_ms = 1000.0 if changed.mode is Mode.ALIGNED_WITH_TIMEOUT else None
        return WhatIf(mode=changed.mode, aligned_timeout_ms=timeout_ms)
    if names == {"rate"} and "rate" in mine and "rate" in theirs:
        return WhatIf(load_factor=float(theirs["rate"]) / float(mine["rate"]))
    if names == {"last-parallelism"}:
        vertex = base.evidence.topology.vertices[-1].id
        return WhatIf(parallelism=((vertex, int(theirs.get("last-parallelism", theirs["parallelism"]))),))
    if names == {"hot-key-ratio"} and "hot-key-ratio" in mine:
        return WhatIf(without_skew=True)
    if names == {"slow-host-factor"} and "slow-host-factor" in mine:
        return WhatIf(without_slow_host=True)
    if names and names <= {_DEBLOAT_ENABLED, _DEBLOAT_TARGET}:
        if theirs.get(_DEBLOAT_ENABLED) == "true":
            return WhatIf(debloat_target_ms=float(theirs[_DEBLOAT_TARGET].removesuffix("ms")))
        return WhatIf(is_debloat_off=True)
    return None
