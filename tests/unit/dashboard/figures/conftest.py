"""A fixture for a fake API with one job of each kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.fake_api import FakeApi


@pytest.fixture(scope="module")
def fake() -> FakeApi:
    from tests.support.fake_api import FakeApi
    from tests.support.figures import NOW

    return FakeApi(now=lambda: NOW)
