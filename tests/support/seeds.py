"""Seeds for a test: the first few run in ``make test``, all of them in ``make test-long``."""

from __future__ import annotations

import pytest


def over_seeds(few: int, *, more: int) -> pytest.MarkDecorator:
    """Run a test with the seeds below ``few``, and as slow tests with those from there to below ``more``."""
    return pytest.mark.parametrize(
        "seed",
        [pytest.param(n, id=f"seed-{n}", marks=[pytest.mark.slow] if n >= few else []) for n in range(more)],
    )
