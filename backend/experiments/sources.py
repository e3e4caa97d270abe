"""Unaligned checkpoints of legacy sources, which hold a lock while they emit, and of new ones.

The records of the source span several buffers. A legacy source that finds no free buffer waits in the middle of a
record, and its checkpoint waits too. A new source is only asked for a record if a buffer is free.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from backend.experiments.flip76 import slow_sink_job
from backend.experiments.measuring import THREAD, UNALIGNED, Variant, comparison, with_vertex
from backend.experiments.model import Ordering, about_equal, below, every
from backend.runtime.engine.jobfile import JobSpec

_SHUFFLES: Final = {"two shuffles": 1, "four shuffles": 3}
_TWO, _FOUR = _SHUFFLES


def _job(seed: int, maps: int) -> JobSpec:
    spec = slow_sink_job("aligned", seed=seed, slow_us=100_000, maps=maps)
    spec = with_vertex(spec, "source", record_bytes=16_000)
    return with_vertex(spec, "map", output_bytes=1_000)


_LEGACY: Final = {"is_legacy": True}

SOURCES: Final = comparison(
    "sources",
    "Unaligned checkpoints of legacy and of new sources",
    "A slow sink blocks sources in the middle of a record: how long checkpoints take, behind two and four shuffles.",
    variants={
        "new": Variant(UNALIGNED),
        "legacy": Variant(UNALIGNED, _LEGACY),
        "legacy with hook": Variant(UNALIGNED, {**_LEGACY, "has_nonblocking_hook": True}),
        "legacy, aligned": Variant({}, _LEGACY),
    },
    jobs={name: partial(_job, maps=maps) for name, maps in _SHUFFLES.items()},
    measures=("duration", "start delay"),
    orderings=(
        Ordering(
            "Under backpressure, checkpoints of legacy sources take at least three times as long.",
            f"{THREAD}, A. Heise",
            every(*(below("duration", name, "new", "legacy", times=3) for name in _SHUFFLES)),
            says="When they block because of backpressure, the induced checkpoints cannot acquire the lock and"
            " checkpointing duration increases.",
        ),
        Ordering(
            "With a way to avoid blocking, legacy sources take as long as new ones.",
            f"{THREAD}, A. Heise",
            every(*(about_equal("duration", name, ("new", "legacy with hook"), share=0.01) for name in _SHUFFLES)),
            says="We will provide SourceFunctions a way to also avoid blocking",
        ),
        Ordering(
            "Even with legacy sources, unaligned checkpoints are at least five times shorter than aligned ones.",
            f"{THREAD}, A. Heise",
            every(*(below("duration", name, "legacy", "legacy, aligned", times=5) for name in _SHUFFLES)),
            says="since only sources are affected, the checkpointing durations are still much lower",
        ),
        Ordering(
            "Twice as many shuffles make them at most a quarter longer.",
            f"{THREAD}, A. Heise",
            below("duration", _FOUR, "legacy", "legacy", times=1 / 1.25, other=_TWO),
            says="most importantly do not increase with further shuffles",
        ),
        Ordering(
            "Twice as many shuffles make aligned checkpoints at least twice as long.",
            f"{THREAD}, A. Heise",
            below("duration", _TWO, "legacy, aligned", "legacy, aligned", times=2, other=_FOUR),
            says="most importantly do not increase with further shuffles",
        ),
    ),
)
