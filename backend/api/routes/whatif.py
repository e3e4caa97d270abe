"""The routes for what-ifs on a job."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Path, Request

from backend.api import examples
from backend.api.deps import CheckpointId, Given, JobId
from backend.contracts.advice import CardOut, DryRunOut
from backend.contracts.simulations import SimulatedCheckpointOut
from backend.contracts.whatif import ConfirmationOut, WhatIfApplyIn, WhatIfIn, WhatIfOut

router = APIRouter(prefix="/jobs/{job}/whatif", tags=["what-if"])
_ONE = "/confirmations/{confirmation}"

ConfirmationId = Annotated[
    str,
    Path(max_length=100, pattern=r"^[^\x00]*$", description="Id of a confirmation.", examples=["w3f5c1e0a9b7d2468"]),
]
RunNumber = Annotated[int, Path(ge=0, le=1, description="0 for the job as it is, 1 for the changed job.", examples=[1])]
Wanted = Annotated[WhatIfIn, Body(openapi_examples={"another mode": {"value": examples.read("what_if_in")}})]
Chosen = Annotated[WhatIfApplyIn, Body(openapi_examples={"another mode": {"value": examples.read("what_if_apply_in")}})]


@router.post("", responses=examples.of("what_if"))
async def ask_what_if(job: JobId, wanted: Wanted, request: Request, services: Given) -> WhatIfOut:
    """Predict the checkpoints of a job under other settings. With `confirm`, also queue a run of its model.

    422 with the type `job-not-modelled` if too little is known of the job; the detail names what is missing. 429 if the
    queue is full.
    """
    caller = request.client.host if request.client is not None else ""
    return await services.what_if.answer(job, wanted, caller=caller)


@router.post("/apply", responses=examples.of("card"))
async def apply_what_if(job: JobId, wanted: Chosen, services: Given) -> CardOut:
    """Change the settings of the running job, and keep the prediction until its effect is measured.

    409 if the change needs a restart or is no setting. 409 with the type `prediction-gone` if the prediction that
    `model_id` names is no longer kept: ask again.
    """
    return await services.what_if.apply(
        *(job, wanted.settings),
        is_sent=True,
        model_id=wanted.model_id,
        is_guarded=wanted.is_guarded,
        author=wanted.author,
    )


@router.post("/dry-run", responses=examples.of("dry_run"))
async def try_what_if(job: JobId, wanted: Chosen, services: Given) -> DryRunOut:
    """Say what `apply` would send where, and what would refuse it. The target is asked, and nothing changes."""
    return await services.what_if.dry_run(job, wanted.settings)


@router.post("/accept", responses=examples.of("card"))
async def accept_what_if(job: JobId, wanted: Chosen, services: Given) -> CardOut:
    """Keep the prediction of a change that you make yourself. It is measured once the engine reports the settings.

    409 with the type `prediction-gone` if the prediction that `model_id` names is no longer kept: ask again.
    """
    return await services.what_if.apply(
        job, wanted.settings, is_sent=False, model_id=wanted.model_id, author=wanted.author
    )


@router.get(_ONE, responses=examples.of("what_if_confirmation"))
async def read_confirmation(job: JobId, confirmation: ConfirmationId, services: Given) -> ConfirmationOut:
    """Return the state and the progress of a confirmation and, when it is completed, its result."""
    return await services.what_if.confirmation(job, confirmation)


@router.delete(_ONE, status_code=204)
async def cancel_confirmation(job: JobId, confirmation: ConfirmationId, services: Given) -> None:
    """Cancel a confirmation. A running one stops within seconds."""
    await services.what_if.cancel(job, confirmation)


@router.get(_ONE + "/runs/{number}/checkpoints/{checkpoint}", responses=examples.of("simulated_checkpoint"))
async def read_confirmed_checkpoint(
    job: JobId, confirmation: ConfirmationId, number: RunNumber, checkpoint: CheckpointId, services: Given
) -> SimulatedCheckpointOut:
    """Return one simulated checkpoint with its subtasks, its barrier events and its space-time diagram."""
    return await services.what_if.checkpoint(job, confirmation, number, checkpoint)
