"""The backtest of one job: the early warning, the verdict and the advice replayed over its stored checkpoints; pure.

Without Spark and with it, this function makes the result of a job from the same stored values.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from backend.analysis.health.finish import past_of
from backend.analysis.numbers.arrays import kept_arrays
from backend.analysis.numbers.cache import kept_values
from backend.backtest.cards import AdviceReplay, AdviceReplayer, ChooseFor
from backend.backtest.early_warning import AgeBand, EndedCheckpoint, Score, Tally, Watched, tally_of, watched
from backend.backtest.moments import Moment, Moments
from backend.backtest.stored import JobHistory, StoredCheckpoint
from backend.backtest.verdicts import VerdictReplay, VerdictReplayer, case_of
from backend.domain.backtest import EVERY_PART, Part
from backend.domain.checkpoint import CheckpointKind
from backend.domain.clock import from_epoch_ms, to_epoch_ms
from backend.domain.failure import FailureReason

WARNINGS_KEPT: Final = 200


@dataclass(frozen=True, slots=True)
class Warned:
    """A warning that would have been given: when, at which age, how probable, and what came of it."""

    checkpoint_id: int
    run_id: str
    at: str
    age_ms: float
    timeout_ms: float
    expiry_ratio: float | None
    is_expired: bool
    ended_after_ms: float


@dataclass(slots=True)
class JobResult:
    """How the warnings, the verdicts and the advice on one job would have fared.

    ``warnings`` has the newest ``WARNINGS_KEPT``, oldest first. ``skipped_count`` ended checkpoints were left out of
    the warnings, because their acknowledgements or their length are not stored. ``verdict`` and ``advice`` are None if
    they were not asked for.
    """

    job_id: str
    tally: Tally = field(default_factory=Tally)
    warnings: list[Warned] = field(default_factory=list)
    skipped_count: int = 0
    verdict: VerdictReplay | None = None
    advice: AdviceReplay | None = None

    def document(self) -> dict[str, Any]:
        """Return the result as a document of JSON."""
        return asdict(self)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> JobResult:
        """Return the result from its document."""
        tally = dict(document["tally"])
        for name in ("predicted", "plain"):
            tally[name] = Score(**tally[name])
        tally["bands"] = [AgeBand(**band) for band in tally["bands"]]
        warnings = [Warned(**warning) for warning in document["warnings"]]
        verdict, advice = document["verdict"], document["advice"]
        return cls(
            document["job_id"],
            Tally(**tally),
            warnings,
            document["skipped_count"],
            None if verdict is None else VerdictReplay.of(verdict),
            None if advice is None else AdviceReplay.of(advice),
        )


def result_of(
    job_id: str,
    history: JobHistory,
    parts: Collection[Part] = EVERY_PART,
    on_progress: Callable[[int], None] = lambda count: None,
    choose_for: ChooseFor | None = None,
) -> JobResult:
    """Replay one job.

    ``on_progress`` gets the number of checkpoints that are done. ``choose_for`` lets the fast simulation choose
    settings where the service would; without it, the advice is that of rules and replayed checkpoints.
    """
    result = JobResult(job_id)
    newest: deque[Warned] = deque(maxlen=WARNINGS_KEPT)
    # Each checkpoint and each reading is evidence at many moments.
    with kept_arrays(), kept_values():
        rows = _replayed(history, result, parts, on_progress, choose_for)
        if Part.WARNING in parts:
            result.tally = tally_of(_noted(watched(_ended(rows, history, result)), newest))
        else:
            deque(rows, maxlen=0)
    result.warnings = list(newest)
    return result


def _replayed(
    history: JobHistory,
    result: JobResult,
    parts: Collection[Part],
    on_progress: Callable[[int], None],
    choose_for: ChooseFor | None,
) -> Iterator[StoredCheckpoint]:
    """Yield the checkpoints in the order of their triggers, and replay the verdict and the advice meanwhile."""
    moments = Moments(history.runs)
    verdict = VerdictReplayer() if Part.VERDICT in parts else None
    advice = AdviceReplayer(choose_for) if Part.ADVICE in parts else None

    done = 0

    def replay(found: Iterable[Moment]) -> None:
        nonlocal done
        for moment in found:
            case = case_of(moment)
            said = None if verdict is None else verdict.add(moment, case)
            if advice is not None:
                advice.add(moment, case, said)
            done += 1
            on_progress(done)

    has_moments = verdict is not None or advice is not None
    for chunk in history.chunks():
        if has_moments:
            replay(moments.feed(chunk))
        yield from chunk.checkpoints
        if not has_moments:
            done += sum(c.header.kind is CheckpointKind.CHECKPOINT for c in chunk.checkpoints)
            on_progress(done)
    replay(moments.finish())
    result.verdict = None if verdict is None else verdict.result()
    result.advice = None if advice is None else advice.result()


def _ended(rows: Iterable[StoredCheckpoint], history: JobHistory, result: JobResult) -> Iterator[EndedCheckpoint]:
    numbers: dict[object, int] = {}
    for row in rows:
        header, run = row.header, history.runs.get(row.run_id)
        if header.kind is not CheckpointKind.CHECKPOINT or run is None:
            continue
        acks = [ms for detail in row.checkpoint.details for ms in detail.ack_delay_ms]
        past = past_of(header, acks, {})
        if past is None:
            result.skipped_count += 1
            continue
        shape = run.shape_at(header.triggered_at)
        number = numbers.setdefault((row.run_id, shape.settings), len(numbers))
        yield EndedCheckpoint(
            header.checkpoint_id,
            to_epoch_ms(header.triggered_at),
            None if shape.config is None else shape.config.timeout_ms,
            past,
            header.failure_reason is FailureReason.EXPIRED,
            number,
            row.run_id,
        )


def _noted(rows: Iterable[Watched], newest: deque[Warned]) -> Iterator[Watched]:
    for row in rows:
        if row.warned_ms is not None:
            own = row.checkpoint
            look = next(look for look in row.looks if look.age_ms == row.warned_ms)
            at = from_epoch_ms(round(own.triggered_ms + row.warned_ms)).isoformat()
            newest.append(
                Warned(
                    own.number,
                    own.run_id,
                    at,
                    row.warned_ms,
                    float(own.timeout_ms or 0),
                    look.expiry_ratio,
                    own.is_expired,
                    own.past.end_ms,
                )
            )
        yield row
