"""The demo jobs: seven job files in this folder.

One job is healthy. The other six show a typical problem or its remedy.
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


def demo_names() -> tuple[str, ...]:
    """Return the names of the demo jobs."""
    return _ORDER


def demo_path(name: str) -> Path:
    """Return the path of a demo job's file.

    Raises:
        KeyError: there is no demo job of that name.
    """
    if name not in _ORDER:
        raise KeyError(name)
    return _FOLDER / f"{name}.toml"
