"""The routes for advice on a job."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Path, Query

from backend.api import examples
from backend.api.deps import LIMIT, Cursor, Given, JobId, Limit
from backend.contracts import advice, api

router = APIRouter(prefix="/jobs/{job}", tags=["advice"])
_ONE = "/recommendations/{recommendation}"

CardId = Annotated[
    str,
    Path(max_length=100, pattern=r"^[^\x00]*$", description="Id of a recommendation.", examples=["a5e1f0c2d3b4a697"]),
]
RollBack = Annotated[bool, Query(description="Try the roll back, not the change.")]
Dismissal = Annotated[advice.DismissIn, Body(openapi_examples={"dismiss": {"value": examples.read("dismiss")}})]


@router.get("/advice", responses=examples.of("job_advice"))
async def read_advice(job: JobId, services: Given) -> advice.JobAdviceOut:
    """Return the recommendations for a job with their predictions, or the reasons for giving none."""
    return await services.advice.of_job(job)


@router.get("/recommendations", responses=examples.page_of("card"))
async def list_recommendations(
    job: JobId, services: Given, cursor: Cursor = None, limit: Limit = LIMIT
) -> api.Page[advice.CardOut]:
    """List all recommendations for a job with their outcomes, newest first."""
    return await services.advice.history(job, cursor=cursor, limit=limit)


@router.get(_ONE, responses=examples.of("card_verified"))
async def read_recommendation(job: JobId, recommendation: CardId, services: Given) -> advice.CardOut:
    """Return one recommendation."""
    return await services.advice.card(job, recommendation)


@router.post(_ONE + "/accept", responses=examples.of("card"))
async def accept_recommendation(
    job: JobId, recommendation: CardId, services: Given, wanted: advice.DecisionIn | None = None
) -> advice.CardOut:
    """Accept a recommendation: you intend to make the change. 409 if it is already dismissed, applied or expired."""
    return await services.advice.accept(job, recommendation, author=None if wanted is None else wanted.author)


@router.post(_ONE + "/dismiss", responses=examples.of("card"))
async def dismiss_recommendation(
    job: JobId, recommendation: CardId, wanted: Dismissal, services: Given
) -> advice.CardOut:
    """Dismiss a recommendation with a reason.

    The same recommendation is not made again for 30 days unless the settings change.
    """
    return await services.advice.dismiss(job, recommendation, wanted.reason, author=wanted.author)


@router.post(_ONE + "/apply", responses=examples.of("card"))
async def apply_recommendation(
    job: JobId, recommendation: CardId, services: Given, wanted: advice.ApplyIn | None = None
) -> advice.CardOut:
    """Apply the recommended change to the running job. 409 if the change needs a restart, or the target refuses it."""
    given = wanted or advice.ApplyIn()
    return await services.advice.apply(job, recommendation, is_guarded=given.is_guarded, author=given.author)


@router.get(_ONE + "/dry-run", responses=examples.of("dry_run"))
async def try_recommendation(
    job: JobId, recommendation: CardId, services: Given, roll_back: RollBack = False
) -> advice.DryRunOut:
    """Return what applying the recommendation would send now, and what would refuse it. Nothing changes."""
    return await services.advice.dry_run(job, recommendation, is_roll_back=roll_back)


@router.post(_ONE + "/roll-back", responses=examples.of("card"))
async def roll_back_recommendation(
    job: JobId, recommendation: CardId, services: Given, wanted: advice.DecisionIn | None = None
) -> advice.CardOut:
    """Undo an applied recommendation on the running job. 409 if it is not in force or if that needs a restart."""
    return await services.advice.roll_back(job, recommendation, author=None if wanted is None else wanted.author)
