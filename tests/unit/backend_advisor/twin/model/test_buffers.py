"""Tests of the buffers that a cluster's configuration gives to a job, by version."""

from __future__ import annotations

from backend.advisor.twin.model.buffers import reported_buffers
from backend.advisor.twin.model.model import NetworkModel

_MEMORY = "taskmanager.network.memory."
SET = {
    f"{_MEMORY}{name}": "3" for name in ("buffers-per-channel", "floating-buffers-per-gate", "max-buffers-per-channel")
}


def test_flink_2_ignores_every_setting_of_the_number_of_buffers():
    default = NetworkModel()
    old, new = reported_buffers(default, SET, (1, 20)), reported_buffers(default, SET, (2, 0))

    assert new == default
    assert (old.exclusive_buffers_per_channel, old.floating_buffers_per_gate, old.max_buffers_per_channel) == (3, 3, 3)
