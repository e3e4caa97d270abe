"""The demo jobs: seven shapes of trouble and of health, in job files beside this module."""

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


def demo_names() -> tuple[str, ...]:
    """Names of the demo jobs."""
    return _ORDER


def demo_path(name: str) -> Path:
    """The job file of a demo job.

    Raises:
        KeyError: there is none of that name.

    """
    if name not in _ORDER:
        raise KeyError(name)
    return _FOLDER / f"{name}.toml"
