"""Rows of evidence: each a statement a person can check at the engine, with its number and where that comes from."""

from __future__ import annotations

from backend.analysis import sentences as say
from backend.analysis.case import Case
from backend.analysis.pressure import Suspect, VertexLoad, backpressured_max
from backend.analysis.statistics import highest, known, median, ratio
from backend.analysis.thresholds import CHECKPOINTS_MAX
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.ids import VertexId
from backend.domain.verdict import Basis, Evidence

_LATE_MAX = 6


def fare(case: Case) -> list[Evidence]:
    """How the judged checkpoints fared: duration, failures, settings."""
    report, config = case.report, case.evidence.config
    rows: list[Evidence] = []
    if report.duration_median_ms is not None:
        many = len(report.completed)
        text = f"median duration of {many} completed checkpoints"
        if many == 1:
            text = "duration of the only completed checkpoint looked at"
        rows.append(_row(text, "end_to_end_duration", report.duration_median_ms, "ms"))
    if report.failed:
        reasons = {c.header.failure_reason.value for c in report.failed if c.header.failure_reason is not None}
        many = report.judged_count
        of = f"failed of the last {many} checkpoints" if many > 1 else "the only checkpoint looked at failed"
        text = f"{of} ({', '.join(sorted(reasons)) or 'no reason'})"
        rows.append(_row(text, "failed", len(report.failed), "count"))
    if report.overdue is not None:
        text = f"checkpoint {report.overdue.checkpoint.header.checkpoint_id} is in progress, open for"
        rows.append(_row(text, "trigger_timestamp", report.overdue.open_ms, "ms"))
    if config is not None and config.interval_ms is not None:
        rows.append(_row("checkpoint interval", "interval", config.interval_ms, "ms"))
    if config is not None and config.timeout_ms is not None:
        rows.append(_row("checkpoint timeout", "timeout", config.timeout_ms, "ms"))
    return rows


def load(case: Case, suspect: Suspect) -> list[Evidence]:
    """The sign itself: full, not held back, fed by something held back; and what tells one subtask from all."""
    vertex, feeder = case.name(suspect.vertex_id), case.name(suspect.feeder_id)
    total = len(case.loads[suspect.vertex_id].busy)
    who = say.subtasks(suspect.full, total)
    readings = case.loads[suspect.vertex_id].reading_count
    rows = [
        _row(
            f"{vertex}: {who} busy, {'one reading' if readings == 1 else f'mean of {readings} readings'}",
            "busyRatio",
            suspect.busy,
            "ratio",
        ),
        _row(
            f"{feeder}, which feeds it: its most back-pressured subtask",
            "backpressureRatio",
            suspect.feeder_backpressured,
            "ratio",
        ),
    ]
    if suspect.queue_ms is not None:
        text = f"{vertex}: the barrier in the queue before {who}, the longest, mean"
        rows.append(_row(text, "start_delay", suspect.queue_ms, "ms", Basis.RECONSTRUCTED))
    if suspect.siblings_busy is not None:
        rows.append(_row(f"{vertex}: the other subtasks busy, mean", "busyRatio", suspect.siblings_busy, "ratio"))
    if suspect.siblings_backpressured is not None:
        text = f"{vertex}: the other subtasks back-pressured, mean"
        rows.append(_row(text, "backpressureRatio", suspect.siblings_backpressured, "ratio"))
    if suspect.share_ratio is not None and suspect.share_ratio != float("inf"):
        since = "since it started" if case.loads[suspect.vertex_id].is_total else "over the readings"
        text = f"{vertex}: records of {who} over those of another subtask, {since}"
        rows.append(_row(text, "numRecordsIn", suspect.share_ratio, "ratio"))
    if suspect.cost_ratio is not None:
        text = f"{vertex}: busy time per record of {who} over that of another subtask"
        rows.append(_row(text, "busyRatio / numRecordsIn", suspect.cost_ratio, "ratio", Basis.RECONSTRUCTED))
    return rows


def travel(case: Case, vertex_id: VertexId) -> list[Evidence]:
    """When the barrier came to the vertex, how long it aligned, and what its snapshot took: the largest, typically."""
    vertex, phases = case.name(vertex_id), case.subtasks_of(vertex_id)
    rows: list[Evidence] = []
    for text, metric, values in (
        ("largest start delay", "start_delay", [highest(p.start_delay_ms for p in rows_) for rows_ in phases]),
        ("longest alignment", "alignment", [highest(p.alignment_duration_ms for p in rows_) for rows_ in phases]),
        ("longest sync part", "sync", [highest(p.sync_duration_ms for p in rows_) for rows_ in phases]),
        ("longest async part", "async", [highest(p.async_duration_ms for p in rows_) for rows_ in phases]),
    ):
        middle = median(values)
        if middle is not None:
            many = f", median of {say.checkpoints(len(known(values)))}" if len(values) > 1 else ""
            rows.append(_row(f"{vertex}: {text}{many}", metric, middle, "ms"))
    return rows


def late(case: Case, vertex_id: VertexId) -> list[Evidence]:
    """First barriers of subtasks that had not acknowledged, of the newest checkpoint where a gauge told any."""
    for walked in reversed(case.walked):
        rows = [p for p in walked.phases.get(vertex_id, ()) if not p.is_acknowledged and p.first_barrier_ms is not None]
        if rows:
            number = walked.checkpoint.header.checkpoint_id
            return [
                _row(
                    f"checkpoint {number}: first barrier at {case.name(vertex_id)} subtask {p.subtask}, "
                    f"which had not acknowledged (read every {say.duration(p.first_barrier_resolution_ms or 0)})",
                    "checkpointStartDelayNanos",
                    p.first_barrier_ms,
                    "ms",
                )
                for p in rows[:_LATE_MAX]
            ]
    return []


def persistence(case: Case, vertex_id: VertexId) -> list[Evidence]:
    """How often the same subtask was last, and what the newest completed checkpoint had been without it."""
    done = [w for w in case.walked if w.path is not None and w.is_completed]
    if not done or done[-1].path is None:
        return []
    newest, path = done[-1], done[-1].path
    lasts = [(w.path.last_vertex_id, w.path.last_subtask) for w in case.walked if w.path is not None and not w.is_open]
    count = lasts.count((path.last_vertex_id, path.last_subtask))
    where = f"{say.vertex(path.last_vertex)} subtask {path.last_subtask}"
    was = "acknowledged last" if all(w.is_completed for w in case.walked) else "was the last, or still awaited,"
    rows = [_row(f"{where} {was} in {count} of {len(lasts)} checkpoints", "latest_ack_timestamp", None, None)]
    if case.is_suffering and path.without_last_ms is not None and path.last_vertex_id == vertex_id:
        took, without = say.duration(newest.duration_ms), say.duration(path.without_last_ms)
        text = (
            f"checkpoint {newest.checkpoint.header.checkpoint_id}: without its last subtask {took} would be {without}"
        )
        if took != without:
            rows.append(_row(text, "end_to_end_duration", path.without_last_ms, "ms", Basis.RECONSTRUCTED))
    return rows


def broadcast(case: Case, vertex_id: VertexId) -> list[Evidence]:
    """A broadcast input, where unaligned barriers do not overtake (flink-baseline.md, 12)."""
    config = case.evidence.config
    if config is None or not config.is_unaligned_enabled:
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
    """The largest back-pressure and the busiest subtask anywhere, where there are readings."""
    most = backpressured_max(case.loads)
    if most is None:
        return []
    rows = [
        _row(f"most back-pressured subtask anywhere (of {case.name(most[0])})", "backpressureRatio", most[1], "ratio")
    ]
    busiest = max(case.loads.values(), key=_busiest)
    rows.append(
        _row(f"busiest subtask anywhere (of {case.name(busiest.vertex_id)})", "busyRatio", _busiest(busiest), "ratio")
    )
    return rows


def lateness(case: Case, vertex_id: VertexId) -> list[Evidence]:
    """How much later the slowest subtask is than its siblings, which an even load shows too (flink-baseline.md, 6)."""
    ratios: list[float | None] = []
    for phases in case.subtasks_of(vertex_id):
        delays = sorted(known(p.start_delay_ms for p in phases if p.is_acknowledged))
        ratios.append(ratio(delays[-1], median(delays[:-1])) if len(delays) == len(phases) > 1 else None)
    middle = median(ratios)
    if middle is None or not case.is_suffering:
        return []
    text = (
        f"{case.name(vertex_id)}: start delay of the slowest subtask over its siblings' median; "
        "1.7 to 2.2 is seen under an even load, so it proves nothing alone"
    )
    return [_row(text, "start_delay", middle, "ratio")]


def hiding(case: Case) -> list[Evidence]:
    """What unaligned checkpoints persist to get past the queues, where they do."""
    persisted = median(
        w.checkpoint.header.persisted_bytes for w in case.walked if w.checkpoint.header.persisted_bytes is not None
    )
    if case.is_suffering or not persisted:
        return []
    text = "in-flight data persisted by a checkpoint, median: unaligned barriers pass the queues, throughput stays"
    return [_row(text, "persisted", persisted, "bytes")]


def restarts(case: Case) -> list[Evidence]:
    """Restarts of the job, and the newest exception it threw."""
    found: list[Evidence] = []
    if case.evidence.restart_count:
        found.append(number("restarts of the job", "numRestarts", case.evidence.restart_count, "count"))
    if case.evidence.exceptions:
        lines = case.evidence.exceptions[-1][1].splitlines() or [""]
        found.append(note(f"newest exception: {lines[0][:200]}"))
    return found


def unlisted(case: Case) -> list[Evidence]:
    """Failures that the engine counts and keeps no record of, where its history still goes back to the first."""
    counts, seen = case.evidence.counts, case.evidence.checkpoints
    if counts is None or len(seen) >= CHECKPOINTS_MAX:
        return []
    count = counts.failed - sum(c.header.status is CheckpointStatus.FAILED for c in seen)
    text = "failures counted but not recorded: triggers refused while tasks start or restart"
    return [_row(text, "failed", count, "count")] if count > 0 else []


def reconstructed(text: str, metric: str, value: float, unit: str) -> Evidence:
    """A statement with a number worked out from measured ones."""
    return _row(text, metric, value, unit, Basis.RECONSTRUCTED)


def note(text: str) -> Evidence:
    """A statement that is no number."""
    return Evidence(text, "note")


def number(text: str, metric: str, value: float, unit: str, basis: Basis = Basis.MEASURED) -> Evidence:
    """A statement with its number."""
    return _row(text, metric, value, unit, basis)


def _busiest(load_: VertexLoad) -> float:
    return highest(load_.busy) or 0.0


def _row(text: str, metric: str, value: float | None, unit: str | None, basis: Basis = Basis.MEASURED) -> Evidence:
    rounded = None if value is None else say.rounded(value)
    return Evidence(text, metric, basis, rounded, unit)
