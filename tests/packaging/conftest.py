"""Fixtures of the packaging tests. They build and install the wheel once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.packaging.wheel_environment import Environment, build_wheel, install_wheel


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return install_wheel(wheel, tmp_path_factory.mktemp("installed"))
