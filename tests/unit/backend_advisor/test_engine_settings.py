"""Tests of the settings that a recommendation changes: their keys and values for each engine and version."""

from __future__ import annotations

import pytest

from backend.domain.engines import RUNTIME
from tests.support.advised_jobs import (
    advised,
    recommended,
    slow_run,
)

# --- proposed settings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "key", "file"),
    [
        ("1.20.5", "execution.checkpointing.unaligned.enabled", "conf/config.yaml"),
        ("2.3.0", "execution.checkpointing.unaligned.enabled", "conf/config.yaml"),
        ("1.17.2", "execution.checkpointing.unaligned.enabled", "conf/flink-conf.yaml"),
        ("1.16.3", "execution.checkpointing.unaligned", "conf/flink-conf.yaml"),
    ],
)
def test_the_keys_match_the_version_of_the_engine(version, key, file):
    how_to = recommended(advised(slow_run(), version=version)).how_to

    assert how_to.lines == (f"{key}: true", "execution.checkpointing.aligned-checkpoint-timeout: 200 ms")
    assert how_to.rollback_lines == (f"{key}: false", "execution.checkpointing.aligned-checkpoint-timeout: 0 ms")
    assert how_to.file.startswith(file)
    assert how_to.needs_restart
    assert how_to.patch == {}


def test_the_runtime_gets_a_patch_without_a_restart_and_a_rollback_patch():
    how_to = recommended(advised(slow_run(), engine=RUNTIME, version="0.1.0")).how_to

    assert not how_to.needs_restart
    assert how_to.patch["execution.checkpointing.unaligned.enabled"] == "true"
    assert how_to.rollback_patch["execution.checkpointing.unaligned.enabled"] == "false"
