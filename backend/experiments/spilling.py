"""Ad-hoc against continuous spilling (FLIP-76): how much is written, and how long unaligned checkpoints take.

Ad-hoc spilling writes what a checkpoint overtakes. Continuous spilling writes all output of every subtask when it is
sent. Both run in the job of FLIP-76's test plan, with a slow sink and with a sink that keeps up.
"""

from __future__ import annotations

import statistics
from typing import Final

from backend.experiments.flip76 import slow_sink_job
from backend.experiments.model import Experiment, Ordering, Row, below, every, run_engine
from backend.runtime.job.config import Spilling

_SINKS: Final = {"the sink keeps up": 40, "slow sink": 2_000}
_END_US: Final = 4_000_000


def _run(task: str, seed: int, ratio: float) -> list[Row]:
    rows = []
    for setting, slow_us in _SINKS.items():
        job = slow_sink_job("unaligned", seed=seed, slow_us=slow_us).with_config({"runtime.spilling": task})
        engine = run_engine(job, round(ratio * _END_US))
        done = list(engine.coordinator.all_completed)
        of_checkpoints = sum(record.channel_write.written_bytes for record in done)
        written = of_checkpoints + engine.env.channel_files.store.written_bytes
        rows.append(Row("written", task, setting, seed, written / engine.now_us, "MB a second"))
        if done[1:]:
            # Leave out the first checkpoint, because the buffers were still filling.
            median_us = statistics.median(record.end_to_end_us or 0 for record in done[1:])
            rows.append(Row("duration", task, setting, seed, median_us / 1000, "ms end to end"))
    return rows


_FLIP: Final = "FLIP-76, decision of 2020-02-19: the ad-hoc prototype showed much better efficiency"

EXPERIMENT: Final = Experiment(
    name="spilling",
    title="In-flight data written when it is overtaken, or when it is sent",
    sentence="Unaligned checkpoints with ad-hoc and with continuous spilling: bytes written, and durations.",
    tasks=(Spilling.AD_HOC.value, Spilling.CONTINUOUS.value),
    run=_run,
    orderings=(
        Ordering(
            "Ad-hoc spilling writes less than continuous spilling.",
            _FLIP,
            every(*(below("written", s, "ad-hoc", "continuous") for s in _SINKS)),
        ),
        Ordering(
            "Checkpoints with ad-hoc spilling do not take longer, although they write in-flight data themselves.",
            _FLIP,
            every(*(below("duration", s, "ad-hoc", "continuous", or_equal=True) for s in _SINKS)),
        ),
    ),
)
