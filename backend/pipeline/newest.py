"""Predicts a job from its newest stored checkpoints, in this process or in a task of Spark."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from backend.advisor.twin.fleet import JobAnswer, answer_of
from backend.advisor.twin.tiers import QuickTiers
from backend.backtest.moments import EVIDENCE_COUNT, newest_moment
from backend.pipeline.history import StoredJobHistory, Texts


def answer_from(texts: Texts, job_id: str, settings: Mapping[str, str]) -> JobAnswer:
    """Predict a job as it was at the end of its newest checkpoint, and under ``settings``."""
    moment = newest_moment(StoredJobHistory(texts, job_id, newest_max=EVIDENCE_COUNT))
    if moment is None:
        return JobAnswer(settings={}, problem="no checkpoint of it has ended; ask when five have")
    run = moment.run
    return answer_of(moment.modelled(), settings, engine=run.engine, version=run.engine_version, quick=_tiers())


@cache
def _tiers() -> QuickTiers:
    """Return the quick tiers that this process can use. A task on another machine may have no numba."""
    try:
        import numba  # noqa: F401  its presence decides
    except ImportError:
        quick = QuickTiers()
        quick.finish("numba is not installed where the task runs")
        return quick
    return QuickTiers(is_ready=True)
