"""Finds the writes to the checkpoint store that hung, in recorded checkpoints.

A write that took many times as long as is usual for its subtask hung, for whatever reason. A subtask with more state
than its siblings always takes longer. The model knows that, so it is no hang. Neither is a write that took longer
because it, or all writes of its checkpoint together, had more bytes than usual. What counts of a hang is by how much it
delayed the end of its checkpoint. The durations of single writes show those too that ended before a late barrier came:
they would delay a checkpoint whose barriers overtake data (``Hangs.hidden_ms``). A subtask that no barrier reached
wrote nothing, so a hang that it would have met is not seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from backend.advisor.twin.model.hangs import NO_HANGS, Hangs, Schedule
from backend.advisor.twin.model.model import Assumption, JobModel
from backend.advisor.twin.model.outcomes import Simulated
from backend.advisor.twin.model.snapshots import HungWrites, Recorded, duration_ms, own_async_ms
from backend.analysis.numbers.arrays import Floats, array_of, stacked
from backend.analysis.words import sentences as say
from backend.domain.checkpoint import CheckpointConfig, CheckpointStatus
from backend.domain.ids import VertexId
from backend.domain.topology import Topology

HANG_MIN_MS: Final = 500.0
HANG_FACTOR: Final = 4.0
CHECKPOINTS_MIN: Final = 5
"""Of fewer checkpoints, nobody knows what is usual."""
SUBJECT: Final = "hanging writes to the store"
_USUAL: Final = 0.25


def hung_writes(recorded: Sequence[Recorded], topology: Topology, config: CheckpointConfig | None) -> HungWrites:
    """Return how long the writes of each recorded checkpoint hung."""
    took = [{v: own_async_ms(r, v, topology, config) for v in r.phases} for r in recorded]
    wrote = [{v: _written_bytes(r, v, ms.size) for v, ms in row.items()} for r, row in zip(recorded, took, strict=True)]
    if len(recorded) < CHECKPOINTS_MIN:
        return [{v: np.zeros(ms.size) for v, ms in row.items()} for row in took]
    usual_ms, usual_bytes = _by_subtask(took, _USUAL), _by_subtask(wrote, 0.5)
    totals = [sum(float(np.nansum(b)) for b in row.values()) for row in wrote]
    usual_total = float(np.median([t for t, r in zip(totals, recorded, strict=True) if _is_complete(r)] or totals))
    writes = []
    for ms_of, bytes_of, total in zip(took, wrote, totals, strict=True):
        of_all = _times(total, usual_total)
        writes.append(
            {
                v: _beyond(
                    ms, usual_ms[v][: ms.size], np.maximum(of_all, _times(bytes_of[v], usual_bytes[v][: ms.size]))
                )
                for v, ms in ms_of.items()
            }
        )
    return writes


def hangs_of(recorded: Sequence[Recorded], hung: HungWrites, when: Schedule) -> Hangs:
    """Return the hangs of recorded checkpoints. ``hung`` has their hung writes, and ``when`` their schedule."""
    delays_ms = [_delays_ms(r, row) for r, row in zip(recorded, hung, strict=True)]
    if not any(delay_ms or hidden_ms for delay_ms, hidden_ms in delays_ms):
        return NO_HANGS
    done = [n for n, r in enumerate(recorded) if _is_complete(r)]
    expired = [n for n, r in enumerate(recorded) if not _is_complete(r)]
    expired.sort(key=lambda n: -delays_ms[n][0])
    place = {n: index for index, n in enumerate((*done, *expired))}
    return Hangs(
        tuple(delays_ms[n][0] for n in done),
        tuple(delays_ms[n][0] for n in expired),
        _period_ms(recorded, when),
        hidden_ms=tuple(delays_ms[n][1] for n in place),
        travel_ms=_travel_ms(recorded),
        order=tuple(place[n] for n in range(len(recorded))),
    )


def hangs_assumption(hangs: Hangs) -> tuple[Assumption, ...]:
    """Return what is assumed of writes that hang: how often, what they delay, and that they come by time."""
    hidden_count = sum(more > 0 and not ms for ms, more in zip(hangs.known_ms, hangs.hidden_ms, strict=False))
    total = len(hangs.delays_ms) + len(hangs.expired_ms)
    known = sorted(ms for ms in hangs.known_ms if ms)
    parts = []
    if known:
        last = say.duration(known[-1])
        spans = last if len(known) == 1 else f"{say.duration(known[0])} to {last}"
        parts.append(f"in {len(known)} of the last {total} checkpoints a write hung and delayed the end by {spans}")
    if hangs.endless_count:
        many = "in" if known else f"of the last {total} checkpoints, in"
        parts.append(f"{many} {hangs.endless_count} that expired, one hung for longer than the timeout")
    taken = [", and ".join(parts)] if parts else []
    if hidden_count:
        many = f"{hidden_count} more" if parts else f"{hidden_count} of the last {total} checkpoints"
        hidden = "a write hung and ended before a late barrier came, which counts only if barriers may overtake data"
        taken.append(f"in {many}, {hidden}")
    if not taken:
        return ()
    made = Assumption(
        subject=SUBJECT,
        taken="; ".join(taken),
        reason=(
            "what makes writes hang is not known; hangs are assumed to come by time and not by bytes, so that a"
            " checkpoint at twice the interval waits for twice as many"
        ),
    )
    return (made,)


def explained(model: JobModel, runs: Sequence[Simulated]) -> JobModel:
    """Return the model with as many endless hangs as explain the expired checkpoints that the simulation does not.

    ``runs`` simulate the job under the settings under which the checkpoints were recorded.
    """
    durations_ms = [c.duration_ms for run in runs for c in run.checkpoints]
    before = model.store.hangs
    if not before.count or not durations_ms:
        return model
    when = model.settings.schedule
    durations = before.without_endless().on(durations_ms, when)
    hangs = before.explaining(sum(ms >= when.timeout_ms for ms in durations) / len(durations))
    others = tuple(a for a in model.assumptions if a.subject != SUBJECT)
    assumptions = (*others, *hangs_assumption(hangs))
    return replace(model, store=replace(model.store, hangs=hangs), assumptions=assumptions)


def _period_ms(recorded: Sequence[Recorded], when: Schedule) -> float:
    """Return the mean time from one trigger to the next, computed from the durations as for simulated checkpoints.

    The times of the triggers would contain outages, and checkpoints that were not collected.
    """
    durations_ms = [duration_ms(r.checkpoint) for r in recorded]
    return when.period_ms(np.array([ms for ms in durations_ms if ms is not None]))


def _delays_ms(r: Recorded, hung: Mapping[VertexId, Floats]) -> tuple[float, float]:
    """Return by how much hanging writes delayed the last end of a write, and how much more if barriers took no time.

    A hang delays nothing if another subtask, whose barrier comes late, ends later anyway. In a checkpoint that expired,
    the ends of subtasks that did not acknowledge are not known, and do not count.
    """
    ends, arrived, beyond = (
        np.concatenate(rows or [np.zeros(0)])
        for rows in (
            [r.phases[v].async_end_ms for v in hung],
            [r.phases[v].travel_ms for v in hung],
            list(hung.values()),
        )
    )
    delay_ms = _later(ends, beyond)
    return delay_ms, max(0.0, _later(ends - arrived, beyond) - delay_ms)


def _later(ends_ms: Floats, beyond_ms: Floats) -> float:
    """Return how much earlier the last write would have ended if each had taken only its usual time."""
    is_known = ~np.isnan(ends_ms)
    if not is_known.any():
        return 0.0
    return float(ends_ms[is_known].max() - (ends_ms - beyond_ms)[is_known].max())


def _travel_ms(recorded: Sequence[Recorded]) -> float:
    """Return the usual time from a trigger until the last barrier came; 0 if none is known."""
    rows = [np.concatenate([p.travel_ms for p in r.phases.values()] or [np.zeros(0)]) for r in recorded]
    last = [float(np.nanmax(row)) for row in rows if row.size and not np.isnan(row).all()]
    return float(np.median(last)) if last else 0.0


def _is_complete(r: Recorded) -> bool:
    return r.checkpoint.header.status is CheckpointStatus.COMPLETED


def _written_bytes(r: Recorded, vertex: VertexId, size: int) -> Floats:
    detail = r.checkpoint.detail(vertex)
    found = np.full(size, np.nan)
    if detail is not None:
        known = array_of(detail.checkpointed_size_bytes)[:size]
        found[: known.size] = known
    return found


def _by_subtask(rows: Sequence[Mapping[VertexId, Floats]], share: float) -> dict[VertexId, Floats]:
    """Return this quantile of the values of each subtask; infinite for one of which none is known."""
    by_vertex: dict[VertexId, list[Floats]] = {}
    for row in rows:
        for vertex, values in row.items():
            by_vertex.setdefault(vertex, []).append(values)
    found = {}
    for vertex, of_vertex in by_vertex.items():
        table = stacked(of_vertex)
        middle = np.full(table.shape[1], np.inf)
        is_known = ~np.isnan(table).all(axis=0)
        middle[is_known] = np.nanquantile(table[:, is_known], share, axis=0)
        found[vertex] = middle
    return found


def _times(value: Floats | float, usual: Floats | float) -> Floats:
    """Return how many times the usual bytes a write had: at least 1, and 1 if they are not known."""
    times = np.asarray(value, dtype=np.float64) / np.maximum(usual, 1.0)
    return np.asarray(np.where(np.isnan(times), 1.0, np.maximum(times, 1.0)))


def _beyond(took_ms: Floats, usual_ms: Floats, times: Floats) -> Floats:
    """Return by how much each write took longer than is usual for its subtask and its bytes; 0 if it did not hang."""
    expected = np.where(np.isfinite(usual_ms), usual_ms, 0.0) * times
    # A comparison with a duration that is not known is false.
    is_hung = np.isfinite(usual_ms) & (took_ms > np.maximum(HANG_MIN_MS, HANG_FACTOR * expected))
    found: Floats = np.where(is_hung, took_ms - expected, 0.0)
    return found
