"""Builds rows of evidence: statements that a person can check at the engine, with numbers and their basis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isnan

import numpy as np

from backend.analysis.measures import samples
from backend.analysis.measures.critical_path import kept_pace_ms
from backend.analysis.measures.phases import VertexPhases
from backend.analysis.measures.pressure import Suspect, backpressured_max
from backend.analysis.numbers.arrays import Floats, highest_of, median_of
from backend.analysis.numbers.statistics import known, median, ratio, reached
from backend.analysis.verdict.case import Case, Walked
from backend.analysis.words import sentences as say
from backend.analysis.words.thresholds import CHECKPOINTS_MAX, RESTARTS_OF_TRANSACTIONS_WINDOW_S
from backend.domain import known_messages, protocols
from backend.domain.checkpoint import Checkpoint, CheckpointStatus
from backend.domain.ids import VertexId
from backend.domain.rollup import is_lower_bound
from backend.domain.verdict import Basis, Evidence, VerdictKind

_LATE_MAX = 6
_LATE_NAMED_MAX = 4


def fare(case: Case) -> list[Evidence]:
    """Return rows on how the checkpoints fared that the verdict counts: their durations and failures."""
    report = case.report
    failed = [c for c in report.counted if c.header.status is CheckpointStatus.FAILED]
    completed = [c for c in report.counted if c.header.status is CheckpointStatus.COMPLETED]
    took_ms = known(c.header.end_to_end_duration_ms for c in completed)
    rows: list[Evidence] = []
    if report.overdue is not None:
        text = f"time since the trigger of checkpoint {report.overdue.checkpoint.header.checkpoint_id}, in progress"
        rows.append(_row(text, "trigger_timestamp", report.overdue.open_ms, "ms"))
    if failed:
        reasons = {c.header.failure_reason.value for c in failed if c.header.failure_reason is not None}
        text = f"{_failed_of(case)} ({', '.join(sorted(reasons)) or 'no reason'})"
        rows.append(_row(text, "failed", len(failed), "count"))
    newest = report.newest_slow if report.is_recent else ()
    before = [c for c in report.completed if c not in newest]
    if len(newest) > 1 and before:
        for text, these in ((f"the newest {len(newest)} checkpoints", newest), (f"the {len(before)} before", before)):
            took = median(c.header.end_to_end_duration_ms for c in these)
            rows += [] if took is None else [_row(f"median duration of {text}", "end_to_end_duration", took, "ms")]
    usual_ms = median(took_ms)
    if usual_ms is not None:
        many = len(took_ms)
        text = f"median duration of {many} completed checkpoints" if many > 1 else _duration_of_one(case, completed[0])
        rows.append(_row(text, "end_to_end_duration", usual_ms, "ms"))
    return rows


def _failed_of(case: Case) -> str:
    """Say of how many checkpoints the failed ones are counted."""
    many = len(case.report.counted)
    if many > 1:
        return f"checkpoints that failed, of the last {many}"
    number = case.report.failed[0].header.checkpoint_id
    if not case.is_of_one and samples.has_all(case.evidence):
        return "the only checkpoint so far failed"
    return f"checkpoint {number} failed"


def _duration_of_one(case: Case, completed: Checkpoint) -> str:
    # Checkpoints that are too old to be judged may have completed too.
    count = sum(c.header.status is CheckpointStatus.COMPLETED for c in case.evidence.checkpoints)
    if not case.is_of_one and count == 1 and samples.has_all(case.evidence):
        return "duration of the only completed checkpoint"
    return f"duration of checkpoint {completed.header.checkpoint_id}"


def settings(case: Case) -> list[Evidence]:
    """Return rows with the checkpoint interval and timeout, and with a protocol that Flink does not have."""
    config = case.evidence.config
    rows: list[Evidence] = []
    if config is not None and config.protocol is not None:
        rows.append(note(protocols.TRAITS[config.protocol].meaning))
    if config is not None and config.interval_ms is not None:
        rows.append(_row("checkpoint interval", "interval", config.interval_ms, "ms"))
    if config is not None and config.timeout_ms is not None:
        rows.append(_row("checkpoint timeout", "timeout", config.timeout_ms, "ms"))
    return rows


def load(case: Case, suspect: Suspect) -> list[Evidence]:
    """Return rows that show the suspect's subtasks as full and downstream of a back-pressured vertex.

    The row that decides between skew and straggler comes first.
    """
    compared = _compared(case, suspect)
    is_one = suspect.kind in (VerdictKind.SKEW, VerdictKind.STRAGGLER)
    rows = [*(compared if is_one else []), *_full(case, suspect), *_siblings(case, suspect)]
    return rows if is_one else [*rows, *compared]


def _full(case: Case, suspect: Suspect) -> list[Evidence]:
    vertex, feeder = case.name(suspect.vertex_id), case.name(suspect.feeder_id)
    who = say.subtasks(suspect.full, len(case.loads[suspect.vertex_id].busy))
    readings = case.loads[suspect.vertex_id].reading_count
    over = "one reading" if readings == 1 else f"mean of {readings} readings"
    basis = Basis.MEASURED if suspect.without is None else Basis.RECONSTRUCTED
    outside = "" if suspect.without is None else f" outside {suspect.without}"
    rows = [_row(f"{vertex}: {who} busy{outside}, {over}", "busyRatio", suspect.busy, "ratio", basis)]
    if suspect.queue_ms is not None:
        text = f"{vertex}: longest time of the barrier in the queue before {who}, mean"
        rows.append(_row(text, "start_delay", suspect.queue_ms, "ms", Basis.RECONSTRUCTED))
    text = f"{feeder}, upstream of {vertex}: the most back-pressured subtask{outside}"
    return [*rows, _row(text, "backpressureRatio", suspect.feeder_backpressured, "ratio", basis)]


def _siblings(case: Case, suspect: Suspect) -> list[Evidence]:
    vertex = case.name(suspect.vertex_id)
    basis = Basis.MEASURED if suspect.without is None else Basis.RECONSTRUCTED
    outside = "" if suspect.without is None else f" outside {suspect.without}"
    rows: list[Evidence] = []
    if suspect.siblings_busy is not None:
        text = f"{vertex}: the other subtasks busy{outside}, mean"
        rows.append(_row(text, "busyRatio", suspect.siblings_busy, "ratio", basis))
    if suspect.siblings_backpressured is not None:
        text = f"{vertex}: the other subtasks back-pressured{outside}, mean"
        rows.append(_row(text, "backpressureRatio", suspect.siblings_backpressured, "ratio", basis))
    return rows


def _compared(case: Case, suspect: Suspect) -> list[Evidence]:
    """Return rows that compare the full subtasks with their siblings: records, and time per record."""
    vertex = case.name(suspect.vertex_id)
    who = say.subtasks(suspect.full, len(case.loads[suspect.vertex_id].busy))
    rows: list[Evidence] = []
    since = "since it started" if case.loads[suspect.vertex_id].is_total else "over the readings"
    if suspect.share_ratio == float("inf"):
        rows.append(_row(f"{vertex}: {who} got all the records, {since}", "numRecordsIn", None, None))
    elif suspect.share_ratio is not None:
        text = f"{vertex}: records of {who}, divided by those of another subtask, {since}"
        rows.append(_row(text, "numRecordsIn", suspect.share_ratio, "ratio"))
    if suspect.cost_ratio is not None:
        text = f"{vertex}: busy time per record of {who}, divided by that of another subtask"
        cost = _row(text, "busyRatio / numRecordsIn", suspect.cost_ratio, "ratio", Basis.RECONSTRUCTED)
        rows = [cost, *rows] if suspect.kind is VerdictKind.STRAGGLER else [*rows, cost]
    return rows


def arrival(case: Case, vertex_id: VertexId) -> list[Evidence]:
    """Return a row with the time when the barrier reached the vertex, or with the subtasks that did not acknowledge.

    There is a row only if checkpoints fail or take long.
    """
    if not case.is_suffering:
        return []
    seen = next((row for w in reversed(case.walked) if (row := _late_arrival(case, vertex_id, w)) is not None), None)
    if seen is not None:
        return [seen]
    vertex, total, found = case.name(vertex_id), case.subtask_count(vertex_id), case.subtasks_of(vertex_id)
    pending = [len(phases.pending) for phases in found]
    waiting = median(n for n in pending if n)
    if waiting is not None and sum(n > 0 for n in pending) * 2 >= len(pending):
        if len(pending) > 1:
            text = f"{vertex}: subtasks of {total} that had not acknowledged, median of {len(pending)} checkpoints"
            return [_row(text, "pending", waiting, "count")]
        return [note(f"no acknowledgement came from {say.where(vertex, found[0].pending, total)}")]
    reached = [highest_of(phases.travel_ms) for phases in found]
    middle, many = median(reached), len(known(reached))
    if middle is None:
        return []
    text = f"time until the barrier had reached every subtask of {vertex}{_median_of(many)}"
    return [_row(text, "start_delay + alignment", middle, "ms", Basis.RECONSTRUCTED)]


def _late_arrival(case: Case, vertex_id: VertexId, walked: Walked) -> Evidence | None:
    """Return a row with the times at which the barrier reached the subtasks that did not acknowledge this checkpoint.

    Return None if these times are not known.
    """
    phases = walked.phases.get(vertex_id)
    if phases is None:
        return None
    seen = _seen_late(phases)
    if not seen:
        return None
    first_ms = phases.first_barrier_ms
    named = sorted((float(first_ms[i]), i) for i in seen)[-_LATE_NAMED_MAX:]
    others = len(phases.pending) - len(named)
    more = f"; {others} more had not acknowledged" if others else ""
    times = say.listed([say.beside(ms, walked.duration_ms) for ms, _ in named])
    verb = "open for" if walked.is_open else "expired after" if walked.is_expired else "failed after"
    who = f"{case.name(vertex_id)} {say.subtasks([i for _, i in named])}"
    return note(
        f"checkpoint {walked.checkpoint.header.checkpoint_id}, {verb} {say.duration(walked.duration_ms)}: "
        f"the barrier reached {who} after {times}{more}"
    )


def travel(case: Case, vertex_id: VertexId) -> list[Evidence]:
    """Return rows with the start delay, alignment, sync part and async part of the vertex.

    Each row has the largest value of a subtask, as the median over the checkpoints. If a subtask that had not
    acknowledged is missing in one of these values, it is a lower bound, and so is a median that is interpolated from it
    or from a value above it.
    """
    vertex, phases = case.name(vertex_id), case.subtasks_of(vertex_id)
    rows: list[Evidence] = []
    for text, metric, parts in (
        ("largest start delay", "start_delay", [p.first_barrier_ms for p in phases]),
        ("longest alignment", "alignment", [p.alignment_duration_ms for p in phases]),
        ("longest sync part", "sync", [p.sync_duration_ms for p in phases]),
        ("longest async part", "async", [p.async_duration_ms for p in phases]),
    ):
        values = [highest_of(part) for part in parts]
        middle = median(values)
        if middle is not None:
            bounds = [v for v, part, p in zip(values, parts, phases, strict=True) if _is_missing(part, p)]
            least = min(known(bounds), default=None)
            row = _row(f"{vertex}: {text}{_median_of(len(known(values)))}", metric, middle, "ms")
            rows.append(replace(row, is_lower_bound=is_lower_bound(reached(values, 0.5), least)))
    return rows


def _is_missing(part: Floats, phases: VertexPhases) -> bool:
    """Return whether the value of a subtask that had not acknowledged is missing."""
    return any(isnan(part[i]) for i in phases.pending)


def late(case: Case, vertex_id: VertexId) -> list[Evidence]:
    """Return rows with the first barriers of subtasks that had not acknowledged.

    The rows are about the newest checkpoint for which a metric showed such barriers.
    """
    for walked in reversed(case.walked):
        phases = walked.phases.get(vertex_id)
        seen = () if phases is None else _seen_late(phases)
        if phases is not None and seen:
            number = walked.checkpoint.header.checkpoint_id
            return [
                _row(
                    f"checkpoint {number}: first barrier at {case.name(vertex_id)} subtask {p.subtask}, "
                    f"which had not acknowledged (read every {say.duration(p.first_barrier_resolution_ms or 0)})",
                    "checkpointStartDelayNanos",
                    p.first_barrier_ms,
                    "ms",
                )
                for p in (phases[i] for i in seen[:_LATE_MAX])
            ]
    return []


def _seen_late(phases: VertexPhases) -> tuple[int, ...]:
    """Return the subtasks that did not acknowledge although a metric showed their first barrier."""
    first_ms = phases.first_barrier_ms
    return tuple(i for i in phases.pending if not isnan(first_ms[i]))


def persistence(case: Case, vertex_id: VertexId, subtasks: Sequence[int]) -> list[Evidence]:
    """Return a row on how often the same subtask was last, and a row on what these subtasks cost the job.

    The second row has the duration that the newest completed checkpoint would have had if ``subtasks`` of the vertex,
    which the verdict names, had kept pace with their siblings.
    """
    done = [w for w in case.walked if w.path is not None and w.is_completed]
    if not done or done[-1].path is None:
        return []
    newest, path = done[-1], done[-1].path
    ended = [(w, w.path) for w in case.walked if w.path is not None and not w.is_open]
    lasts = [(p.last_vertex_id, p.last_subtask) for _, p in ended]
    count = lasts.count((path.last_vertex_id, path.last_subtask))
    where = f"{say.vertex(path.last_vertex)} subtask {path.last_subtask}"
    was = "acknowledged last" if all(w.is_completed for w, _ in ended) else "was last or had not acknowledged"
    how_often = f" in {count} of {len(ended)} checkpoints" if len(ended) > 1 else ""
    rows = [_row(f"{where} {was}{how_often}", "latest_ack_timestamp", None, None)]
    pace_ms = None
    if case.is_suffering:
        pace_ms = kept_pace_ms(newest.phases, newest.topology, vertex_id, subtasks, took_ms=newest.duration_ms)
    if pace_ms is not None:
        took, number_ = say.duration(newest.duration_ms), newest.checkpoint.header.checkpoint_id
        who = say.where(case.name(vertex_id), tuple(subtasks), case.subtask_count(vertex_id))
        text = f"duration of checkpoint {number_} if {who} had kept pace with the others, instead of {took}"
        if took != say.duration(pace_ms):
            rows.append(_row(text, "end_to_end_duration", pace_ms, "ms", Basis.RECONSTRUCTED))
    return rows


def broadcast(case: Case, vertex_id: VertexId) -> list[Evidence]:
    """Return rows on broadcast inputs, at which unaligned barriers do not overtake data (flink-baseline.md, 12)."""
    config = case.evidence.config
    if config is None or not config.overtakes:
        return []
    return [
        Evidence(
            f"the input from {case.name(e.source)} is BROADCAST: unaligned barriers do not overtake at this vertex",
            "ship_strategy",
        )
        for e in case.evidence.topology.edges
        if e.target == vertex_id and e.ship_strategy == "BROADCAST"
    ]


def calm(case: Case) -> list[Evidence]:
    """Return rows on the most back-pressured and the busiest subtask of the job, or no rows without readings."""
    most = backpressured_max(case.loads)
    if most is None:
        return []
    rows = [
        _row(f"most back-pressured subtask of the job (of {case.name(most[0])})", "backpressureRatio", most[1], "ratio")
    ]
    busy = [(v, highest_of(load.busy)) for v, load in case.loads.items()]
    known_ = [(share, v) for v, share in busy if share is not None]
    if known_:
        share, vertex_id = max(known_, key=lambda one: one[0])
        rows.append(_row(f"busiest subtask of the job (of {case.name(vertex_id)})", "busyRatio", share, "ratio"))
    return [*rows, *(note(_not_reported(case, v)) for v, share in busy if share is None)]


def _not_reported(case: Case, vertex_id: VertexId) -> str:
    kind = " by this kind of source" if not case.evidence.topology.upstream(vertex_id) else ""
    return f"{case.name(vertex_id)}: busy time is not reported{kind}"


def lateness(case: Case, vertex_id: VertexId) -> list[Evidence]:
    """Return a row on how much later the slowest subtask is than its siblings.

    The row alone proves nothing, because the slowest subtask is late even under an even load (flink-baseline.md, 6).
    """
    if not case.is_suffering:
        return []
    ratios: list[float | None] = []
    for phases in case.subtasks_of(vertex_id):
        delays = np.sort(phases.first_barrier_ms)
        # A missing value is sorted to the end.
        is_known = phases.is_complete and delays.size > 0 and not isnan(delays[-1])
        ratios.append(ratio(float(delays[-1]), median_of(delays[:-1])) if is_known and len(phases) > 1 else None)
    middle = median(ratios)
    if middle is None:
        return []
    text = (
        f"{case.name(vertex_id)}: start delay of the slowest subtask, divided by the median of its "
        "siblings; this is 1.7 to 2.2 even under an even load, so it proves nothing alone"
    )
    return [_row(text, "start_delay", middle, "ratio")]


def hiding(case: Case) -> list[Evidence]:
    """Return a row on the in-flight data that unaligned checkpoints persist to overtake the queues.

    There is a row only if checkpoints neither fail nor take long.
    """
    persisted = median(
        w.checkpoint.header.persisted_bytes for w in case.walked if w.checkpoint.header.persisted_bytes is not None
    )
    if case.is_suffering or not persisted:
        return []
    config = case.evidence.config
    reason = "unaligned barriers overtake these queues"
    if config is not None and not config.overtakes:
        reason = "the data of channels whose markers arrived later is logged"
    text = f"in-flight data that a checkpoint persists, median: {reason}"
    return [_row(text, "persisted", persisted, "bytes")]


def restarts(case: Case) -> list[Evidence]:
    """Return rows with the newest exception of the job, what it means if it is known, and the number of restarts."""
    found: list[Evidence] = []
    if case.evidence.exceptions:
        at, newest = max(case.evidence.exceptions)
        lines = newest.splitlines() or [""]
        found.append(note(f"newest exception ({say.utc_minute(at)}): {lines[0][:200]}"))
        # What cured an exception of weeks ago is no advice for now.
        is_recent = (case.evidence.now - at).total_seconds() <= RESTARTS_OF_TRANSACTIONS_WINDOW_S
        message = known_messages.explained(newest) if is_recent else None
        found.extend(note(text) for text in (() if message is None else message.notes))
    if case.evidence.restart_count:
        found.append(number("restarts of the job", "numRestarts", case.evidence.restart_count, "count"))
    return found


def unlisted(case: Case) -> list[Evidence]:
    """Return a row on failures that the engine counted but did not record.

    There is a row only if the engine's history reaches back to the first checkpoint.
    """
    counts, seen = case.evidence.counts, case.evidence.checkpoints
    if counts is None or len(seen) >= CHECKPOINTS_MAX:
        return []
    count = counts.failed - sum(c.header.status is CheckpointStatus.FAILED for c in seen)
    text = "failures counted but not recorded: triggers refused while tasks start or restart"
    return [_row(text, "failed", count, "count")] if count > 0 else []


def reconstructed(text: str, metric: str, value: float, unit: str) -> Evidence:
    """Return a row with a number that was computed from measured numbers."""
    return _row(text, metric, value, unit, Basis.RECONSTRUCTED)


def note(text: str) -> Evidence:
    """Return a row without a number."""
    return Evidence(text, "note")


def number(text: str, metric: str, value: float, unit: str, basis: Basis = Basis.MEASURED) -> Evidence:
    """Return a row with a number."""
    return _row(text, metric, value, unit, basis)


def _median_of(count: int) -> str:
    return f", median of {say.checkpoints(count)}" if count > 1 else ""


def _row(text: str, metric: str, value: float | None, unit: str | None, basis: Basis = Basis.MEASURED) -> Evidence:
    rounded = None if value is None else say.rounded(value)
    return Evidence(text, metric, basis, rounded, unit)
