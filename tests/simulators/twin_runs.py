"""The runs of ``benchmarks/fidelity/FidelityJob.java`` that the twin is proven on, and the settings of their clusters.

Each shape of the job runs aligned and unaligned, and most also with an aligned checkpoint timeout of one second. Any
two runs that differ in one thing are a pair: the twin is fitted on the first run and predicts the second.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from backend.domain.advice import Mode

_MODES = {
    Mode.ALIGNED: {"unaligned": "false"},
    Mode.UNALIGNED: {"unaligned": "true", "aligned-timeout": "0ms"},
    Mode.ALIGNED_WITH_TIMEOUT: {"unaligned": "true", "aligned-timeout": "1s"},
}
_SUFFIXES = {Mode.ALIGNED: "aligned", Mode.UNALIGNED: "unaligned", Mode.ALIGNED_WITH_TIMEOUT: "timeout"}
# A record of the payload below is 1000 bytes on the wire.
_COMMON = {
    "parallelism": "4",
    "payload-bytes": "971",
    "keys": "4000",
    "cost-us": "2000",
    "interval": "3s",
}
_LONGER_S = {
    "wide": 300,
    "straggler-last": 150,
    "straggler-middle": 120,
    "slow-host": 130,
    "hot-key": 100,
    "eight-subtasks": 150,
    "warm-key": 120,
    "costly-chain": 120,
}


class Half(StrEnum):
    """The part of the recordings that a run belongs to: two halves, and runs that were recorded when these were known.

    Causes of misses are looked for in the tuning half only.
    """

    TUNING = "tuning"
    SCORING = "scoring"
    UNSEEN = "unseen"


@dataclass(frozen=True, slots=True)
class TwinRun:
    """One run: the job's arguments, the cluster's settings that differ from Flink's defaults, and how long it lasts.

    ``task_managers`` is the number of TaskManagers that the job needs. ``is_store_slow`` says that its checkpoints go
    to a store of 8 MB/s.
    """

    name: str
    arguments: Mapping[str, str]
    cluster: Mapping[str, str] = field(default_factory=dict)
    task_managers: int = 1
    seconds: float = 80
    is_store_slow: bool = False
    kills_s: tuple[float, ...] = ()
    """When a TaskManager is killed, in seconds after the start. The source then is a log that grows meanwhile."""


@dataclass(frozen=True, slots=True)
class _Shape:
    arguments: Mapping[str, str]
    modes: tuple[Mode, ...] = tuple(Mode)
    cluster: Mapping[str, str] = field(default_factory=dict)
    task_managers: int = 1
    is_store_slow: bool = False


@dataclass(frozen=True, slots=True)
class _Recovery:
    arguments: Mapping[str, str]
    kills_s: tuple[float, ...]
    seconds: float
    cluster: Mapping[str, str] = field(default_factory=dict)
    task_managers: int = 2


_TWO_MODES = (Mode.ALIGNED, Mode.UNALIGNED)
_BURSTS = {"rate": "1600", "burst-period-s": "15", "burst-ratio": "0.3333", "burst-factor": "2"}
_SHAPES = {
    "one-stage": _Shape({"stages": "1"}),
    "two-stages": _Shape({"stages": "2"}),
    "three-stages": _Shape({"stages": "3"}),
    "four-stages": _Shape({"stages": "4"}),
    "five-stages": _Shape({"stages": "5"}),
    "below-capacity": _Shape({"stages": "2", "rate": "1200"}, _TWO_MODES),
    "near-capacity": _Shape({"stages": "2", "rate": "1900"}, _TWO_MODES),
    "over-capacity": _Shape({"stages": "2", "rate": "2800"}, _TWO_MODES),
    "bursts": _Shape({"stages": "2", **_BURSTS}),
    "hot-key": _Shape({"stages": "2", "hot-key-ratio": "0.3"}),
    "straggler-last": _Shape({"stages": "2", "straggler-stage": "2", "straggler-factor": "4"}, _TWO_MODES),
    "straggler-middle": _Shape(
        {"stages": "3", "cost-us": "1000", "inner-cost-us": "1000", "straggler-stage": "2", "straggler-factor": "6"}
    ),
    "no-straggler": _Shape({"stages": "3", "cost-us": "1000", "inner-cost-us": "1000"}, _TWO_MODES),
    "join": _Shape({"stages": "2", "second-rate": "400", "inner-cost-us": "200"}),
    "wide": _Shape({"stages": "2", "parallelism": "16", "cost-us": "8000"}),
    "wider-last-stage": _Shape({"stages": "2", "last-parallelism": "6"}, _TWO_MODES),
    "state": _Shape({"stages": "2", "state-bytes": "5000"}, _TWO_MODES),
    "slow-store": _Shape({"stages": "2", "state-bytes": "5000"}, is_store_slow=True),
    "two-hosts": _Shape({"stages": "3", "inner-cost-us": "500"}, _TWO_MODES, {}, 2),
    "slow-host": _Shape({"stages": "3", "inner-cost-us": "500", "slow-host-factor": "3"}, tuple(Mode), {}, 2),
    "debloating": _Shape(
        {"stages": "3"},
        tuple(Mode),
        {
            "taskmanager.network.memory.buffer-debloat.enabled": "true",
            "taskmanager.network.memory.buffer-debloat.target": "300ms",
        },
    ),
    "few-buffers": _Shape(
        {"stages": "2"},
        _TWO_MODES,
        {
            "taskmanager.network.memory.buffers-per-channel": "1",
            "taskmanager.network.memory.floating-buffers-per-gate": "2",
        },
    ),
    "small-segments": _Shape({"stages": "2"}, _TWO_MODES, {"taskmanager.memory.segment-size": "8kb"}),
}
_UNSEEN_SHAPES = {
    "eight-subtasks": _Shape({"stages": "2", "parallelism": "8", "cost-us": "4000"}),
    "warm-key": _Shape({"stages": "3", "hot-key-ratio": "0.12"}),
    "costly-chain": _Shape({"stages": "4", "rate": "1500", "inner-cost-us": "600"}),
    "large-records": _Shape({"stages": "1", "payload-bytes": "7971", "cost-us": "4000"}),
    "slow-inner-stages": _Shape({"stages": "3", "cost-us": "500", "inner-cost-us": "2000"}),
}
"""Shapes that were recorded after the twin was built, to see how it does on jobs that nobody developed it on."""
_FORM_PAIRS = {
    "near-capacity": "below-capacity",
    "over-capacity": "below-capacity",
    "three-stages": "debloating",
    "two-stages": "hot-key",
    "wider-last-stage": "hot-key",
    "two-hosts": "slow-host",
}
"""Shapes that form pairs with another shape, by the name of the first one in the alphabet."""
_LOOKED_AT = ("wide",)
"""Shapes whose runs were looked at for causes, so that they are in the tuning half whatever their hash is."""


def _runs() -> dict[str, TwinRun]:
    runs = {}
    for shape_name, shape in (_SHAPES | _UNSEEN_SHAPES).items():
        for mode in shape.modes:
            name = f"{shape_name}-{_SUFFIXES[mode]}"
            arguments = {**_COMMON, **shape.arguments, **_MODES[mode]}
            seconds = _LONGER_S.get(shape_name, 80) if mode is Mode.ALIGNED else 80
            runs[name] = TwinRun(name, arguments, shape.cluster, shape.task_managers, seconds, shape.is_store_slow)
    return runs


_KILLED_THRICE_S = (45.0, 102.0, 161.0)
_TWO_SLOTS = {"taskmanager.numberOfTaskSlots": "2"}
_RECOVERIES = {
    "recovery-5s": _Recovery({"rate": "1200", "interval": "5s"}, _KILLED_THRICE_S, 225),
    "recovery-20s": _Recovery({"rate": "1200", "interval": "20s"}, (45.0, 145.0), 235),
    "recovery-10s-high-load": _Recovery({"rate": "1500", "interval": "10s"}, (45.0,), 190),
    # The job has two of three TaskManagers, so the death of one breaks connections of the other.
    "recovery-10s-two-hosts": _Recovery({"rate": "1200", "interval": "10s"}, (45.0, 105.0), 165, _TWO_SLOTS, 3),
}


def _recoveries() -> dict[str, TwinRun]:
    runs = {}
    for name, of in _RECOVERIES.items():
        arguments = {**_COMMON, "stages": "2", **_MODES[Mode.ALIGNED], **of.arguments}
        runs[name] = TwinRun(name, arguments, of.cluster, of.task_managers, of.seconds, kills_s=of.kills_s)
    return runs


RUNS: Mapping[str, TwinRun] = {**_runs(), **_recoveries()}


def half_of(name: str, flink: str) -> Half:
    """Return the part that a run belongs to. The halves are made by a hash of its shape and of the version of Flink.

    Shapes that form pairs with each other are in the same half, so no run of a pair is known from the other half.
    """
    shape = name.rsplit("-", 1)[0]
    if shape in _UNSEEN_SHAPES:
        return Half.UNSEEN
    if shape in _LOOKED_AT:
        return Half.TUNING
    group = _FORM_PAIRS.get(shape, shape)
    is_odd = hashlib.sha256(f"{group} {flink}".encode()).digest()[0] % 2
    return Half.SCORING if is_odd else Half.TUNING
