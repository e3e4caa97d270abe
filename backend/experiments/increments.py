"""Incremental checkpoints: what each state backend writes, how long it takes, and what a restart then costs.

The job is the demo job ``large_kv``: large keyed state, of which a small part changes between checkpoints. It crashes
once, late, so that the restart is measured too.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from backend.experiments.model import Experiment, Ordering, Row, below, run_engine
from backend.runtime.demo import demo_path
from backend.runtime.engine.jobfile import load_job
from backend.runtime.job.graph import FaultSpec

BACKENDS: Final[Mapping[str, str]] = {
    "full": "full",
    "changelog (option I)": "changelog",
    "difference (option II)": "diff",
    "sorted files": "sst",
}
_FULL, _LOG, _DIFF, _FILES = BACKENDS
_CRASH_US, _END_US = 40_000_000, 48_000_000


def _run(task: str, seed: int, ratio: float) -> list[Row]:
    backend = BACKENDS[task]
    settings = {
        "runtime.state-backend": backend,
        "execution.checkpointing.incremental": str(backend != "full").lower(),
        "runtime.fuzz-schedule": str(1 + seed),
        "web.checkpoints.history": "100",
    }
    crash = FaultSpec("source.after-emit", at_us=round(ratio * _CRASH_US))
    spec = replace(load_job(demo_path("large_kv")).with_config(settings), seed=seed, faults=(crash,))
    engine = run_engine(spec, round(ratio * _END_US))
    # Leave out the first checkpoint, which is full with every backend.
    done = [r for r in engine.coordinator.all_completed if r.triggered_at_us < crash.at_us][1:]

    def row(measure: str, value: float, unit: str) -> Row:
        return Row(measure, task, "", seed, value, unit)

    rows = []
    if done:
        rows += [
            row("written", statistics.median(r.written_bytes for r in done) / 1e6, "MB a checkpoint"),
            row("duration", statistics.median((r.end_to_end_us or 0) / 1000 for r in done), "ms end to end"),
            row("needed by a restore", done[-1].state_bytes / 1e6, "MB"),
        ]
    rows += [row("state loaded after", r.state_load_us / 1000, "ms") for r in list(engine.restarts)[:1] if r.subtasks]
    return rows


_BLOG = "Apache Flink blog on the changelog state backend (2022)"
_WORD_COUNT = "Flink 1.17 release notes, word count"

EXPERIMENT: Final = Experiment(
    name="incremental",
    title="Incremental checkpoints: options I and II, sorted files, and full",
    sentence="Large keyed state of which little changes: bytes written, duration, space, and the restart.",
    tasks=tuple(BACKENDS),
    run=_run,
    orderings=(
        Ordering(
            "A changelog makes checkpoints at least five times shorter than the full backend.",
            f"{_BLOG}: 311 ms instead of 5 s; {_WORD_COUNT}: -79.5 %",
            below("duration", "", _LOG, _FULL, times=5),
        ),
        Ordering(
            "A changelog writes at most a twentieth of the full state for a checkpoint.",
            f"{_WORD_COUNT}: -95 %",
            below("written", "", _LOG, _FULL, times=20),
            "The share depends on how much of the state changes between two checkpoints. The state of this job grows"
            " from nothing, so a large part of it is new.",
        ),
        Ordering(
            "A changelog needs more space for a restore than the full backend.",
            f"{_BLOG}: +30 %",
            below("needed by a restore", "", _FULL, _LOG),
        ),
        Ordering(
            "A restart from a changelog loads its state at least 1.66 times slower, because it applies the changes.",
            f"{_BLOG}: +66 to +225 %",
            below("state loaded after", "", _FULL, _LOG, times=1.66),
            "Here the log since the last materialization is short compared with the state that is loaded before it.",
        ),
        Ordering(
            "A difference (option II) writes at most as much as a changelog (option I): it collapses overwrites.",
            "mail on incremental checkpoints, Flink's developer list, option II",
            below("written", "", _DIFF, _LOG, or_equal=True),
        ),
        Ordering(
            "Sorted files make checkpoints shorter than the full backend.",
            "Apache Flink blog on incremental checkpoints (2018): more than 3 min to 30 s",
            below("duration", "", _FILES, _FULL),
        ),
    ),
)
