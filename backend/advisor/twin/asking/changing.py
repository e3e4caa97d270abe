"""Applies the changes of a what-if to a model, and refuses changes that do not apply to it.

If a vertex gets another parallelism, its input, its state and the speed of its subtasks must be divided anew:

* Behind a hash exchange, Flink assigns key groups to subtasks in ranges (PT-2). Keys are not observed. So each key
  group of a subtask gets an equal part of what the subtask has, except that the part of a subtask's share above 1.25
  times the median share is assumed to be one hot key, which no parallelism divides.
* Behind other exchanges, and at sources, each subtask gets the same share.
* A new subtask is as fast as the old subtasks whose key groups it takes over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import isfinite

import numpy as np

from backend.advisor.twin.asking.changes import WhatIf
from backend.advisor.twin.model.model import (
    Assumption,
    CheckpointSettings,
    JobModel,
    NetworkModel,
    Partitioning,
    SourceModel,
    VertexModel,
)
from backend.analysis.numbers.arrays import Floats
from backend.domain.advice import Mode
from backend.domain.engines import EngineCapabilities
from backend.domain.errors import FieldProblem, InvalidInputError
from backend.domain.ids import VertexId
from backend.runtime.core.hashing import default_max_parallelism, groups_of

SUBTASKS_MAX = 4096
"""The largest number of subtasks of a changed job."""
_TIME_MIN_MS = 10.0
"""Flink's smallest checkpoint interval and smallest checkpoint timeout."""
_LOAD_MIN, _LOAD_MAX = 0.01, 100.0
_HOT_FACTOR = 1.25
_UNLIMITED_RATE = "its rate is not known, because back-pressure or its own speed limits it"


def changed(model: JobModel, what_if: WhatIf) -> JobModel:
    """Return the model of the changed job. What the change had to assume is added to the model's assumptions.

    Raises:
        InvalidInputError: a change does not apply to this job. Its problems name every such field of ``what_if``.
    """
    problems = list(_problems(model, what_if))
    if problems:
        raise InvalidInputError(problems, what="what-if")
    wanted = dict(what_if.parallelism)
    assumptions = list(model.assumptions)
    vertices = []
    for old in model.vertices:
        vertex = old
        if what_if.without_slow_host:
            vertex = _on_equal_hosts(vertex)
        if wanted.get(vertex.id, vertex.parallelism) != vertex.parallelism:
            is_hashed = _is_hashed(model, vertex.id)
            vertex = _rescaled(vertex, wanted[vertex.id], is_hashed=is_hashed)
            assumptions.append(_of_rescaling(old, vertex, is_hashed=is_hashed))
        if what_if.without_skew:
            even = (sum(vertex.callback_ms) / vertex.parallelism,) * len(vertex.callback_ms)
            vertex = replace(vertex, input_shares=_even(vertex.parallelism), share_guesses=(), callback_ms=even)
        if vertex.source is not None and what_if.load_factor != 1.0:
            vertex = replace(vertex, source=_with_load(vertex.source, what_if.load_factor))
        vertices.append(vertex)
    return replace(
        model,
        vertices=tuple(vertices),
        network=_network(model.network, what_if),
        settings=_settings(model.settings, what_if),
        assumptions=tuple(assumptions),
    )


def problems_without_job(what_if: WhatIf) -> Iterator[FieldProblem]:
    """Yield what is wrong with ``what_if`` for each job: values out of bounds, and values that contradict another."""
    if what_if.mode is not None:
        yield from _problems_of_timeout(what_if.mode, what_if)
        yield from _problems_of_cap(what_if.mode, what_if)
    yield from _problems_of_numbers(what_if)
    yield from _problems_of_debloating(what_if)
    yield from _problems_of_subtasks([p for _, p in what_if.parallelism], is_changed=bool(what_if.parallelism))


def _problems(model: JobModel, what_if: WhatIf) -> Iterator[FieldProblem]:
    yield from _problems_of_mode(model, what_if)
    yield from _problems_of_numbers(what_if)
    yield from _problems_of_buffers(model, what_if)
    yield from _problems_of_parallelism(model, what_if)
    if _LOAD_MIN <= what_if.load_factor <= _LOAD_MAX and what_if.load_factor != 1.0:
        for vertex in model.vertices:
            if vertex.source is not None and vertex.source.rate_per_s is None:
                yield FieldProblem(
                    "load_factor",
                    f"the load of {vertex.name} cannot be multiplied: {_UNLIMITED_RATE}",
                    "1, or calibrate while the source is not back-pressured",
                )
    if what_if.without_slow_host and not any(f > 1.0 for v in model.vertices for f in v.slow_host_factors):
        yield FieldProblem("without_slow_host", "no slow host was found in this job", "false")


def _problems_of_mode(model: JobModel, what_if: WhatIf) -> Iterator[FieldProblem]:
    engine, settings = model.engine, model.settings
    timeout = what_if.aligned_timeout_ms
    mode = what_if.mode or settings.mode
    overtakes = mode is not Mode.ALIGNED
    if what_if.mode is not None and overtakes:
        if engine is not None and not engine.has_unaligned_checkpoints:
            yield FieldProblem("mode", f"{engine.name} has no unaligned checkpoints", Mode.ALIGNED.value)
        elif not settings.is_exactly_once:
            yield FieldProblem("mode", "at-least-once checkpoints cannot be unaligned", Mode.ALIGNED.value)
        elif settings.max_concurrent > 1:
            yield FieldProblem(
                "mode", "checkpoints cannot be unaligned while several run at once", "one concurrent checkpoint"
            )
    has_known_timeout = timeout is not None or bool(settings.aligned_timeout_ms)
    if what_if.mode is Mode.ALIGNED_WITH_TIMEOUT and not has_known_timeout:
        yield FieldProblem("aligned_timeout_ms", f"is needed for the mode {mode.value}", "milliseconds above 0")
    if timeout is None:
        return
    if engine is not None and engine.aligned_timeout_stops_at_senders and timeout != 0:
        yield FieldProblem("aligned_timeout_ms", timeout_stops_at_senders(engine), "0, or no value")
    elif engine is not None and not engine.has_aligned_timeout and not engine.aligned_timeout_stops_at_senders:
        yield FieldProblem("aligned_timeout_ms", f"{engine.name} of this version has no aligned timeout", "no value")
    else:
        yield from _problems_of_timeout(mode, what_if)


def timeout_stops_at_senders(engine: EngineCapabilities) -> str:
    """Return why no aligned timeout above 0 is predicted for an engine that has one only at the receivers."""
    return (
        f"{engine.name} of this version applies an aligned timeout to no barrier in the output buffers of its sender"
        " (FLINK-27251, mended in 1.16), so only 0 is predicted"
    )


def _problems_of_timeout(mode: Mode, what_if: WhatIf) -> Iterator[FieldProblem]:
    """Yield what is wrong with the aligned timeout if checkpoints have ``mode``."""
    timeout = what_if.aligned_timeout_ms
    if timeout is None:
        return
    if mode is Mode.ALIGNED:
        yield FieldProblem(
            "aligned_timeout_ms",
            "aligned checkpoints have no aligned timeout",
            f"together with the mode {Mode.ALIGNED_WITH_TIMEOUT.value}",
        )
    elif not _is_at_least(timeout, 0.0):
        yield FieldProblem("aligned_timeout_ms", f"{timeout} is no duration", "milliseconds from 0")
    elif what_if.mode is Mode.UNALIGNED and timeout > 0:
        yield FieldProblem(
            "aligned_timeout_ms", "unaligned checkpoints do not wait", f"0, or the mode {Mode.ALIGNED_WITH_TIMEOUT}"
        )
    elif what_if.mode is Mode.ALIGNED_WITH_TIMEOUT and timeout == 0:
        yield FieldProblem("aligned_timeout_ms", "0 makes every checkpoint unaligned", "milliseconds above 0")


def _problems_of_numbers(what_if: WhatIf) -> Iterator[FieldProblem]:
    for name, value, least in (
        ("interval_ms", what_if.interval_ms, _TIME_MIN_MS),
        ("timeout_ms", what_if.timeout_ms, _TIME_MIN_MS),
        ("min_pause_ms", what_if.min_pause_ms, 0.0),
    ):
        if value is not None and not _is_at_least(value, least):
            yield FieldProblem(name, f"{value} is too small or no duration", f"milliseconds from {least:g}")
    factor = what_if.load_factor
    if not _LOAD_MIN <= factor <= _LOAD_MAX:
        yield FieldProblem("load_factor", f"{factor} is out of bounds", f"{_LOAD_MIN:g} to {_LOAD_MAX:g}")


def _problems_of_buffers(model: JobModel, what_if: WhatIf) -> Iterator[FieldProblem]:
    engine = model.engine
    if what_if.inflight_cap_bytes is not None and engine is not None and not engine.has_in_flight_cap:
        yield FieldProblem("inflight_cap_bytes", f"{engine.name} cannot limit in-flight data", "no value")
    else:
        yield from _problems_of_cap(what_if.mode or model.settings.mode, what_if)
    if what_if.debloat_target_ms is not None and engine is not None and not engine.has_buffer_debloating:
        yield FieldProblem("debloat_target_ms", f"{engine.name} of this version has no debloating", "no value")
    else:
        yield from _problems_of_debloating(what_if)


def _problems_of_cap(mode: Mode, what_if: WhatIf) -> Iterator[FieldProblem]:
    """Yield what is wrong with the cap on in-flight data if checkpoints have ``mode``."""
    cap = what_if.inflight_cap_bytes
    if cap is None:
        return
    if mode is Mode.ALIGNED:
        yield FieldProblem(
            "inflight_cap_bytes", "aligned checkpoints persist no in-flight data", "together with another mode"
        )
    elif cap < 0:
        yield FieldProblem("inflight_cap_bytes", f"{cap} is no size", "bytes from 0")
    if what_if.is_uncapped:
        yield FieldProblem("is_uncapped", "contradicts inflight_cap_bytes", "one of the two")


def _problems_of_debloating(what_if: WhatIf) -> Iterator[FieldProblem]:
    target = what_if.debloat_target_ms
    if target is None:
        return
    if not _is_at_least(target, 1.0):
        yield FieldProblem("debloat_target_ms", f"{target} is too small or no duration", "milliseconds from 1")
    if what_if.is_debloat_off:
        yield FieldProblem("is_debloat_off", "contradicts debloat_target_ms", "one of the two")


def _problems_of_parallelism(model: JobModel, what_if: WhatIf) -> Iterator[FieldProblem]:
    names = {v.id: v for v in model.vertices}
    wanted: dict[VertexId, int] = {}
    for vertex_id, parallelism in what_if.parallelism:
        where = f"parallelism[{vertex_id}]"
        vertex = names.get(vertex_id)
        if vertex is None:
            known = ", ".join(f"{v.id} ({v.name})" for v in model.vertices)
            yield FieldProblem(where, "the job has no such vertex", known)
            continue
        if vertex_id in wanted:
            yield FieldProblem(where, f"{vertex.name} is changed twice", "one parallelism")
        most = vertex.max_parallelism or SUBTASKS_MAX
        if not 1 <= parallelism <= most:
            yield FieldProblem(where, f"{parallelism} is not possible for {vertex.name}", f"1 to {most}")
        wanted[vertex_id] = parallelism
    for edge in model.edges:
        ends = [names[edge.source], names[edge.target]]
        after = [wanted.get(v.id, v.parallelism) for v in ends]
        if edge.partitioning is Partitioning.FORWARD and after[0] != after[1]:
            first = next(v for v in ends if v.id in wanted)
            other = next(v for v in ends if v is not first)
            yield FieldProblem(
                f"parallelism[{first.id}]",
                f"a forward edge connects {first.name} with {other.name}",
                f"change both vertices to the same parallelism ({other.id}: {wanted.get(other.id, other.parallelism)})",
            )
    yield from _problems_of_subtasks([wanted.get(v.id, v.parallelism) for v in model.vertices], is_changed=bool(wanted))


def _problems_of_subtasks(parallelisms: Sequence[int], *, is_changed: bool) -> Iterator[FieldProblem]:
    subtasks = sum(parallelisms)
    if is_changed and subtasks > SUBTASKS_MAX:
        yield FieldProblem("parallelism", f"the job would have {subtasks} subtasks", f"at most {SUBTASKS_MAX} in all")


def _is_at_least(value: float, least: float) -> bool:
    return isfinite(value) and value >= least


def _settings(old: CheckpointSettings, what_if: WhatIf) -> CheckpointSettings:
    mode = what_if.mode or old.mode
    timeout = what_if.aligned_timeout_ms
    if mode is Mode.ALIGNED:
        timeout = None
    elif timeout is None:
        timeout = 0.0 if mode is Mode.UNALIGNED else old.aligned_timeout_ms
    if mode is not Mode.ALIGNED:
        mode = Mode.ALIGNED_WITH_TIMEOUT if timeout else Mode.UNALIGNED
    cap = old.inflight_cap_bytes if what_if.inflight_cap_bytes is None else what_if.inflight_cap_bytes
    return replace(
        old,
        mode=mode,
        aligned_timeout_ms=timeout,
        inflight_cap_bytes=None if what_if.is_uncapped else cap,
        interval_ms=old.interval_ms if what_if.interval_ms is None else what_if.interval_ms,
        min_pause_ms=old.min_pause_ms if what_if.min_pause_ms is None else what_if.min_pause_ms,
        timeout_ms=old.timeout_ms if what_if.timeout_ms is None else what_if.timeout_ms,
    )


def _network(old: NetworkModel, what_if: WhatIf) -> NetworkModel:
    if what_if.is_debloat_off:
        return replace(old, debloat_target_ms=None)
    if what_if.debloat_target_ms is not None:
        return replace(old, debloat_target_ms=what_if.debloat_target_ms)
    return old


def _with_load(source: SourceModel, factor: float) -> SourceModel:
    return replace(source, rate_per_s=None if source.rate_per_s is None else source.rate_per_s * factor)


def _on_equal_hosts(vertex: VertexModel) -> VertexModel:
    if not vertex.slow_host_factors:
        return vertex
    factors = vertex.slow_host_factors
    service = tuple(s / f for s, f in zip(vertex.service_us, factors, strict=True))
    callback = tuple(ms / f for ms, f in zip(vertex.callback_ms, factors, strict=True)) if vertex.callback_ms else ()
    return replace(vertex, service_us=service, callback_ms=callback, slow_host_factors=())


def _is_hashed(model: JobModel, vertex_id: VertexId) -> bool:
    return any(e.target == vertex_id and e.partitioning is Partitioning.HASH for e in model.edges)


def _even(parallelism: int) -> tuple[float, ...]:
    return (1.0 / parallelism,) * parallelism


def _rescaled(vertex: VertexModel, parallelism: int, *, is_hashed: bool) -> VertexModel:
    most = vertex.max_parallelism or default_max_parallelism(max(vertex.parallelism, parallelism))
    parts = _parts(vertex.parallelism, parallelism, most)
    shares = np.asarray(vertex.input_shares)
    new_shares = _hashed_shares(shares, parts) if is_hashed else np.full(parallelism, 1.0 / parallelism)
    # A new subtask takes over parts of old subtasks: its time for a record is the mean over what it takes over.
    weights = parts * (np.maximum(shares, 1e-12) if is_hashed else 1.0)
    weights = weights / weights.sum(axis=1, keepdims=True)

    def mean(values: Sequence[float]) -> tuple[float, ...]:
        return tuple((weights @ np.asarray(values)).tolist()) if values else ()

    def divided(values: Sequence[float]) -> tuple[float, ...]:
        return tuple((parts @ np.asarray(values)).tolist()) if values else ()

    return replace(
        vertex,
        service_us=mean(vertex.service_us),
        input_shares=tuple(new_shares.tolist()),
        sync_ms=mean(vertex.sync_ms),
        # The work of a callback belongs to keys, as state does.
        callback_ms=divided(vertex.callback_ms),
        async_fixed_ms=mean(vertex.async_fixed_ms),
        upload_bytes=divided(vertex.upload_bytes),
        state_bytes=divided(vertex.state_bytes),
        slow_host_factors=mean(vertex.slow_host_factors),
        share_guesses=tuple(tuple(_hashed_shares(np.asarray(of), parts).tolist()) for of in vertex.share_guesses)
        if is_hashed
        else (),
    )


def _parts(old: int, new: int, most: int) -> Floats:
    """Return which part of each old subtask (columns) each new subtask (rows) takes over, by key groups (PT-2)."""
    parts = np.zeros((new, old))
    olds = [groups_of(i, old, most) for i in range(old)]
    for j in range(new):
        mine = groups_of(j, new, most)
        for i, theirs in enumerate(olds):
            common = min(mine.stop, theirs.stop) - max(mine.start, theirs.start)
            if common > 0:
                parts[j, i] = common / len(theirs)
    return parts


def _hashed_shares(shares: Floats, parts: Floats) -> Floats:
    normal = np.minimum(shares, _HOT_FACTOR * float(np.median(shares)))
    new = parts @ normal
    # A hot key is in the middle of the key groups of its subtask, because its key group is not known.
    for i in np.flatnonzero(shares > normal).tolist():
        owner = int(np.searchsorted(np.cumsum(parts[:, i]), 0.5))
        new[owner] += shares[i] - normal[i]
    return np.asarray(new / new.sum())


def _of_rescaling(old: VertexModel, new: VertexModel, *, is_hashed: bool) -> Assumption:
    if is_hashed:
        has_hot_key = max(old.input_shares) > _HOT_FACTOR * float(np.median(old.input_shares))
        hot = "; the excess of the largest share is one hot key, which stays whole" if has_hot_key else ""
        reason = "keys are not observed, so each key group of a subtask counts the same" + hot
    else:
        reason = "records are distributed without regard to their keys, so that subtasks get equal shares"
    return Assumption(
        subject=f"input shares of {old.name} at parallelism {new.parallelism}",
        taken=", ".join(f"{share:.1%}" for share in new.input_shares[:8]) + (", ..." if new.parallelism > 8 else ""),
        reason=reason,
    )
