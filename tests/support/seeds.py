"""Seeds for a test. The first few run in ``make test``, and all of them in ``make test-long``."""

from __future__ import annotations

import pytest


def over_seeds(few: int, *, more: int) -> pytest.MarkDecorator:
    """Run a test with each seed from 0 to ``more`` - 1. The seeds from ``few`` on are marked as slow tests."""
    return pytest.mark.parametrize(
        "seed",
        [pytest.param(n, id=f"seed-{n}", marks=[pytest.mark.slow] if n >= few else []) for n in range(more)],
    )
