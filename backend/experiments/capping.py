"""A cap on in-flight data, from none to more than there is: from aligned to unaligned checkpoints (CAP-6).

*wait* overtakes at the first moment at which the data in front of the barriers fits the cap (CAP-3). *partial*
overtakes at once as much of the output as fits (CAP-5).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from itertools import pairwise
from typing import Final

from backend.experiments.flip76 import slow_sink_job
from backend.experiments.model import Experiment, Found, Judgement, Ordering, Row, every, run_engine

ALIGNED, UNALIGNED = "aligned", "unaligned"
_CAPS_KB: Final = (0, 8, 16, 24, 32, 64)
SETTINGS: Final = (ALIGNED, *(f"cap {kb} kB" for kb in _CAPS_KB), UNALIGNED)
"""From the first setting to the last, a cap binds less."""
POLICIES: Final = ("wait", "partial")
_FOR_US: Final = 8_000_000
_NEARLY: Final = 0.05
"""A duration may rise, and a size may fall, by this share of the whole range: the schedules of the runs differ."""


def _run(policy: str, seed: int, ratio: float) -> list[Row]:
    rows = []
    for setting in SETTINGS:
        spec = slow_sink_job(ALIGNED if setting == ALIGNED else UNALIGNED, seed=seed)
        if setting not in (ALIGNED, UNALIGNED):
            cap = setting.removeprefix("cap ").lower()
            spec = spec.with_config({"runtime.inflight-cap.bytes": cap, "runtime.inflight-cap.on-cap": policy})
        # Leave out the first checkpoint, because the buffers were still filling.
        done = list(run_engine(spec, round(ratio * _FOR_US)).coordinator.all_completed)[1:]
        duration_ms = statistics.median((record.end_to_end_us or 0) / 1000 for record in done)
        persisted_kb = statistics.median(record.persisted_bytes / 1000 for record in done)
        rows += [
            Row("duration", policy, setting, seed, duration_ms, "ms end to end"),
            Row("in the checkpoint", policy, setting, seed, persisted_kb, "kB in flight"),
        ]
    return rows


def monotone(measure: str, policy: str, *, falls: bool) -> Callable[[Found], Judgement]:
    """Return a judge: the medians fall, or else rise, from each setting to the next, and differ at both ends."""

    def judge(medians: Found) -> Judgement:
        values = [medians[measure, setting, policy].value for setting in SETTINGS]
        steps = [after - before for before, after in pairwise(values)]
        span = values[-1] - values[0]
        slack = _NEARLY * abs(span)
        goes_on = all(step <= slack if falls else step >= -slack for step in steps)
        words = f"{policy}: " + ", ".join(f"{s} {v:.4g}" for s, v in zip(SETTINGS, values, strict=True))
        return Judgement(goes_on and (span < 0 if falls else span > 0), words)

    return judge


def _between(medians: Found) -> Judgement:
    low, high = medians["duration", UNALIGNED, "wait"].value, medians["duration", ALIGNED, "wait"].value
    inside = [
        setting
        for setting in SETTINGS
        if low + 0.1 * (high - low) < medians["duration", setting, "wait"].value < high - 0.1 * (high - low)
    ]
    return Judgement(
        len(inside) >= 2, f"at least a tenth of the range away from both ends: {', '.join(inside) or 'none'}"
    )


_S2: Final = "the second change of FLIP-76: unaligned checkpoints with at most this much in-flight data"

EXPERIMENT: Final = Experiment(
    name="in-flight-cap",
    title="A cap on in-flight data: between aligned and unaligned checkpoints",
    sentence="Checkpoint duration and in-flight bytes as the cap grows from nothing to more than there is in flight.",
    tasks=POLICIES,
    run=_run,
    orderings=(
        Ordering(
            "The higher the cap, the shorter the checkpoint. No step from aligned to unaligned makes it longer.",
            _S2,
            every(*(monotone("duration", policy, falls=True) for policy in POLICIES)),
        ),
        Ordering(
            "The higher the cap, the more in-flight data is in the checkpoint.",
            _S2,
            every(*(monotone("in the checkpoint", policy, falls=False) for policy in POLICIES)),
        ),
        Ordering(
            "A cap that a part of the in-flight data exceeds gives a duration between the two, not one of them.",
            _S2,
            _between,
        ),
    ),
)
