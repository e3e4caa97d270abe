"""The diagnosis of a job that cannot be judged, because its engine reports nothing about it that can be read.

Silence is not health (decision 0011): what was read before may be long over, so no verdict is repeated.
"""

from __future__ import annotations

from backend.domain.observation import JobState
from backend.domain.verdict import Confidence, Diagnosis, Evidence, Health, Verdict, VerdictKind


def diagnosis_of(state: JobState, engine_state: str, problem: str | None) -> Diagnosis | None:
    """Return the diagnosis of a job that starts or cannot be read. Return None for any other job."""
    if state is JobState.STARTING:
        return _starting(engine_state)
    return _unreadable(problem or "no reason is known") if state is JobState.UNREADABLE else None


def _starting(engine_state: str) -> Diagnosis:
    verdict = Verdict(
        kind=VerdictKind.UNDECIDED,
        sentence=f"The job is starting ({engine_state}): it takes no checkpoints yet.",
        confidence=Confidence.LOW,
        evidence=(Evidence(f"the engine reports the state {engine_state}", "state"),),
        would_decide=("checkpoints, once the job runs",),
        headline="The job is starting",
        detail=f"Its engine reports {engine_state}. It takes no checkpoints yet.",
    )
    return Diagnosis(Health.TOO_FEW, verdict)


def _unreadable(problem: str) -> Diagnosis:
    verdict = Verdict(
        kind=VerdictKind.UNDECIDED,
        sentence=f"What the engine reports about this job cannot be read, so nothing is known about it: {problem}",
        confidence=Confidence.LOW,
        evidence=(Evidence(problem, "problem"),),
        would_decide=("the response that is named, as the engine sends it",),
        headline="The job cannot be read",
        detail=f"Nothing is known about its checkpoints now: {problem}",
    )
    return Diagnosis(Health.FAILING, verdict)
