"""The network buffers that a cluster's configuration gives to a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from backend.advisor.twin.model.model import NetworkModel
from backend.runtime.core.units import size_bytes

_SEGMENT = "taskmanager.memory.segment-size"
_BUFFERS = "taskmanager.network.memory.buffers-per-channel"
_FLOATING = "taskmanager.network.memory.floating-buffers-per-gate"
_MAX_BUFFERS = "taskmanager.network.memory.max-buffers-per-channel"
_BUFFERS_FIXED_SINCE = (2, 0)
"""Since this version Flink ignores the settings of buffers per channel and per gate, and uses the defaults."""


def reported_buffers(network: NetworkModel, reported: Mapping[str, str], version: tuple[int, int]) -> NetworkModel:
    """Return the buffers that the cluster is configured with. A setting that it does not list has its default."""
    segment = size_bytes(reported[_SEGMENT]) if _SEGMENT in reported else network.segment_bytes
    network = replace(network, segment_bytes=segment)
    if version >= _BUFFERS_FIXED_SINCE:
        return network
    return replace(
        network,
        max_buffers_per_channel=int(reported.get(_MAX_BUFFERS, network.max_buffers_per_channel)),
        exclusive_buffers_per_channel=int(reported.get(_BUFFERS, network.exclusive_buffers_per_channel)),
        floating_buffers_per_gate=int(reported.get(_FLOATING, network.floating_buffers_per_gate)),
    )
