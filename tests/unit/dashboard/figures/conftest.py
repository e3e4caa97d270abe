"""A fixture for a fake API with one job of each kind."""

from __future__ import annotations

import pytest

from tests.support.fake_api import FakeApi
from tests.support.figures import NOW


@pytest.fixture(scope="module")
def fake() -> FakeApi:
    return FakeApi(now=lambda: NOW)
