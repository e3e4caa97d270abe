"""The demo jobs: job files in this folder.

Seven of them run live by default: one is healthy, and six show a typical problem or its remedy. Six show one further
system each: Chandy-Lamport, unaligned checkpoints on the last barrier, continuous spilling into merged files,
incremental checkpoints of large keyed state (``large_kv``), sources that end (``bounded``), and the restore of a job of
which a part has finished (``partly-finished``). ``barrierscope up --job NAME`` runs them live. ``rising-load`` is the
job of the story that ``barrierscope demo`` plays. The others show what distinguishes protocols, in the Lab.
"""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent
_ORDER = (
    "backpressured",
    "backpressured-unaligned",
    "backpressured-aligned-timeout",
    "healthy",
    "hot-key",
    "middle-straggler",
    "slow-store",
)

STORY = "rising-load"
_SYSTEMS = ("chandy-lamport", "last-barrier", "spilling", "large_kv", "bounded", "partly-finished")
_OF_THE_LAB = ("bounded-join", "legacy-source", "fan-out", "busy-sync", "changing-load")


def job_names() -> tuple[str, ...]:
    """Return the names of all jobs in this folder."""
    return (*_ORDER, *_SYSTEMS, STORY, *_OF_THE_LAB)


def demo_names() -> tuple[str, ...]:
    """Return the names of the demo jobs that run live by default."""
    return _ORDER


def demo_path(name: str) -> Path:
    """Return the path of the file of a job in this folder.

    Raises:
        KeyError: there is no job of that name.
    """
    if name not in job_names():
        raise KeyError(name)
    return _FOLDER / f"{name}.toml"
