"""Replays the history of one job for a request. A worker of the role ``lab`` calls it in a thread.

Unlike other simulations, it reads the store: at most ``checkpoint_count`` of the newest checkpoints of one job.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Final

from backend.backtest import report, report_cards
from backend.backtest.cards import ChooseFor
from backend.backtest.jobs import JobResult, result_of
from backend.contracts.backtests import (
    AdviceReplayOut,
    BacktestIn,
    BacktestResultOut,
    EpisodeOut,
    ReplayedCardOut,
    VerdictReplayOut,
    WarningReplayOut,
)
from backend.domain.backtest import Part
from backend.domain.errors import TooLargeError
from backend.services.simulations.catalog import LIMITS, Limits
from backend.services.simulations.simulating import Progress, Result, SimulationStoppedError
from backend.store.history_connection import open_history

KIND: Final = "backtest"


def run(
    database_url: str,
    wanted: Mapping[str, Any],
    progress: Progress,
    limits: Limits = LIMITS,
    cpu_s: Callable[[], float] = time.thread_time,
    choose_for: ChooseFor | None = None,
) -> Result:
    """Replay the job of a document of the queue. ``choose_for`` lets the fast simulation choose settings.

    Raises:
        SimulationStoppedError: ``progress.is_stopped`` was set.
        TooLargeError: the replay used more CPU time than a limit allows.
        StoreUnavailableError: PostgreSQL does not respond.
    """
    began_s = cpu_s()
    request = BacktestIn.model_validate(wanted["request"])

    def note(done: int) -> None:
        progress.ratio = min(1.0, done / request.checkpoint_count)
        if progress.is_stopped:
            raise SimulationStoppedError
        if cpu_s() - began_s > limits.cpu_max_s:
            problem = f"it needs more than {limits.cpu_max_s:g} s of CPU time"
            raise TooLargeError("backtest", problem, field="checkpoint_count", fix="ask for fewer checkpoints")

    since_s = None if request.since is None else int(request.since.timestamp())
    with open_history(database_url) as history:
        stored = history.of_job(wanted["job_id"], since_s, request.checkpoint_count)
        result = result_of(wanted["job_id"], stored, frozenset(request.parts), note, choose_for)
    return Result([result_out(result, request.parts)], [])


def result_out(result: JobResult, parts: list[Part]) -> BacktestResultOut:
    """Return the result as the API returns it."""
    warning = verdict = advice = None
    if Part.WARNING in parts:
        figures = report.figures(result.tally)
        names = ("checkpoint_count", "predicted", "plain_rule")
        warning = WarningReplayOut.model_validate(
            {name: figures[name] for name in names}
            | {"skipped_count": result.skipped_count, "warnings": [asdict(w) for w in result.warnings]}
        )
    if result.verdict is not None:
        values = result.verdict.score.document()
        episodes = [EpisodeOut.model_validate(e) for e in result.verdict.episodes]
        verdict = VerdictReplayOut.model_validate(_known(VerdictReplayOut, values) | {"episodes": episodes})
    if result.advice is not None:
        cards = [ReplayedCardOut.model_validate(report_cards.card_document(card)) for card in result.advice.cards]
        values = result.advice.score.document()
        advice = AdviceReplayOut.model_validate(_known(AdviceReplayOut, values) | {"cards": cards})
    return BacktestResultOut(warning=warning, verdict=verdict, advice=advice)


def _known(model: type[VerdictReplayOut | AdviceReplayOut], values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in model.model_fields}
