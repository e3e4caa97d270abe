"""Fixtures and settings every kind of test may use."""

from __future__ import annotations

import pytest
from hypothesis import settings

# How long one example takes is the machine's doing, not the code's.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
