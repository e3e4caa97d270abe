"""Predicts a job from its newest stored checkpoints, in this process or in a task of Spark."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

from backend.advisor.twin.fast import fast
from backend.advisor.twin.tiers.fleet import JobAnswer, answer_of
from backend.advisor.twin.tiers.tiers import QuickTiers
from backend.analysis.assembling import EVIDENCE_COUNT
from backend.backtest.moments import newest_moment
from backend.store.history import StoredJobHistory, Texts

_PROBLEM_MAX: Final = 200


def answer_from(texts: Texts, job_id: str, settings: Mapping[str, str]) -> JobAnswer:
    """Predict a running job as it was at the end of its newest checkpoint, and under ``settings``."""
    moment = newest_moment(StoredJobHistory(texts, job_id, newest_max=EVIDENCE_COUNT, is_running=True))
    if moment is None:
        return JobAnswer(settings={}, problem="no checkpoint of its present run has ended; ask when five have")
    run = moment.run
    return answer_of(moment.modelled(), settings, engine=run.engine, version=run.engine_version, quick=prepared_tiers())


@cache
def prepared_tiers() -> QuickTiers:
    """Return the quick tiers that this process can use, with the fast one compiled.

    A task on another machine may have no numba, or no folder for what it compiles. Closed formulas answer there.
    """
    quick = QuickTiers(is_ready=True)
    try:
        fast.prepare()
    except Exception as error:  # noqa: BLE001  whatever goes wrong, closed formulas answer
        quick.finish((str(error) or type(error).__name__).splitlines()[0][:_PROBLEM_MAX])
    return quick
