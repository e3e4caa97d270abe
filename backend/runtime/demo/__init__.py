"""The demo jobs: job files in this folder.

Seven of them run live by default: one is healthy, and six show a typical problem or its remedy. Two are
workloads for ``simulate`` and the Lab page: ``large_kv`` has large keyed state of which little changes, and the sources
of ``bounded`` end. ``rising-load`` is the job of the story that ``barrierscope demo`` plays.
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
_WORKLOADS = ("large_kv", "bounded", STORY)


def job_names() -> tuple[str, ...]:
    """Return the names of all jobs in this folder."""
    return _ORDER + _WORKLOADS


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
