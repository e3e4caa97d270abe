"""The routes for curves over the cap on in-flight data, which the Lab page and scripts request."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Path, Request

from backend.api import examples
from backend.api.deps import Given
from backend.contracts.cap_curves import CapCurveIn, CapCurveOut

router = APIRouter(prefix="/cap-curves", tags=["simulations"])

CapCurveId = Annotated[
    str, Path(max_length=100, pattern=r"^[^\x00]*$", description="Id of a curve.", examples=["c3f5c1e0a9b7d2468"])
]
NewCapCurve = Annotated[CapCurveIn, Body(openapi_examples={"chosen caps": {"value": examples.read("cap_curve_in")}})]


@router.post("", status_code=202, responses=examples.of("cap_curve", status=202))
async def add_cap_curve(wanted: NewCapCurve, request: Request, services: Given) -> CapCurveOut:
    """Queue the runs of one job with aligned checkpoints, with caps on in-flight data, and unaligned.

    It counts as a simulation. The same request again returns the same curve, with its points while they are kept. 422
    with the type `curve-too-large` if it would exceed a limit, and 429 if the queue is full.
    """
    caller = request.client.host if request.client is not None else ""
    return await services.cap_curves.submit(wanted, caller=caller)


@router.get("/{curve}", responses=examples.of("cap_curve"))
async def read_cap_curve(curve: CapCurveId, services: Given) -> CapCurveOut:
    """Return the state and the progress of a curve and, when it is completed, its points."""
    return await services.cap_curves.get(curve)


@router.delete("/{curve}", status_code=204)
async def cancel_cap_curve(curve: CapCurveId, services: Given) -> None:
    """Cancel a curve, for everybody who requested it. A running one stops within seconds."""
    await services.cap_curves.cancel(curve)
