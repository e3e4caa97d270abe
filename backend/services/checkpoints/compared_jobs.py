"""What two sides of a comparison have besides their checkpoints: their jobs, the names of these, and the settings.

A setting that is not stored for a side is not known there, which is not a difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final

from backend.contracts.comparing import ComparedJobOut, LoadOut, SettingPairOut, SettingValue
from backend.domain.checkpoint import CheckpointConfig
from backend.domain.checkpoint_mode import mode_of
from backend.domain.engines import EngineCapabilities
from backend.domain.topology import Topology, Vertex
from backend.store.jobs.pressure import WindowLoad
from backend.store.jobs.reader import JobRecord, RunRecord

LOAD_READINGS_MAX: Final = 20
"""The load of a side is that of at most so many readings."""
_ONLY_MAX: Final = 50
# The engines report these only while they apply, so that a missing value means *off*.
_OFF_IF_MISSING: Final = frozenset(
    {
        "aligned_timeout_ms",
        "inflight_cap_bytes",
        "debloat_target_ms",
        "protocol",
        "spilling",
        "is_off",
        "ends_with_first_task",
    }
)


@dataclass(frozen=True, slots=True)
class ComparedJob:
    """The job of one side, as it was at the time of the side.

    ``engine_version`` is None unless the run of the side is the job's current run: the version of earlier runs is not
    stored.
    """

    id: str
    name: str
    target_name: str
    engine: EngineCapabilities
    engine_version: str | None
    config: CheckpointConfig | None
    topology: Topology

    @classmethod
    def of(cls, job: JobRecord, run: RunRecord, config: CheckpointConfig | None, topology: Topology) -> ComparedJob:
        """Make the job of a side from what was read about it."""
        version = job.engine_version if run.id == job.run.id else None
        return cls(job.id, job.name, job.target_name, run.engine, version, config, topology)


def names_of(a: ComparedJob, b: ComparedJob) -> tuple[str, str] | None:
    """Return words that distinguish two jobs, or None if they are one job: names, or else targets, or else ids."""
    if a.id == b.id:
        return None
    if a.name != b.name:
        return a.name, b.name
    return (a.target_name, b.target_name) if a.target_name != b.target_name else (a.id, b.id)


def job_out(one: ComparedJob, only: Sequence[Vertex]) -> ComparedJobOut:
    """Return the job of a side. ``only`` are the vertices that the other side does not have."""
    return ComparedJobOut(
        id=one.id,
        name=one.name,
        target_name=one.target_name,
        capabilities=one.engine,
        engine_version=one.engine_version,
        are_settings_known=one.config is not None,
        only_vertices=[v.name for v in only[:_ONLY_MAX]],
        only_vertex_count=len(only),
    )


def load_out(load: WindowLoad | None) -> LoadOut | None:
    """Return the load of a vertex on one side, or None if there are no readings."""
    return None if load is None else LoadOut.model_validate(load)


def settings_out(
    a: ComparedJob, b: ComparedJob, only: tuple[Sequence[Vertex], Sequence[Vertex]] = ((), ())
) -> list[SettingPairOut]:
    """Return the settings that at least one side reports, in the order of ``a``.

    ``only`` are the vertices that only one side has. Their parallelism has no counterpart, so it is left out.
    """
    sides = [_settings(one, {v.id for v in own}) for one, own in zip((a, b), only, strict=True)]
    return [pair for name in dict.fromkeys([*sides[0], *sides[1]]) if (pair := _pair(name, *sides)) is not None]


def _pair(name: str, a: Mapping[str, SettingValue], b: Mapping[str, SettingValue]) -> SettingPairOut | None:
    mine, yours = a.get(name), b.get(name)
    if mine is None and yours is None:
        return None
    is_known = all(name in side and (side[name] is not None or name in _OFF_IF_MISSING) for side in (a, b))
    return SettingPairOut(name=name, a=mine, b=yours, is_different=is_known and mine != yours, is_known=is_known)


def _settings(one: ComparedJob, without: set[str]) -> dict[str, SettingValue]:
    """Return the settings of a side by name. A name is absent if the setting is not stored."""
    setting_values: dict[str, SettingValue] = {}
    if one.config is not None:
        setting_values["alignment"] = mode_of(one.config)
        setting_values |= {f.name: getattr(one.config, f.name) for f in fields(CheckpointConfig)}
    setting_values |= {"engine": one.engine.name, "engine_version": one.engine_version}
    names = Counter(v.name for v in one.topology.vertices)
    for v in one.topology.vertices:
        if v.id not in without:
            # Of several vertices with one name, each needs its own row.
            label = v.name if names[v.name] == 1 else f"{v.name} ({v.id})"
            setting_values[f"parallelism of {label}"] = v.parallelism
    return setting_values
