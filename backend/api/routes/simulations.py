"""The routes for simulations, which the Lab page and scripts request."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Path, Request

from backend.api import examples
from backend.api.deps import CheckpointId, Given
from backend.contracts.simulations import (
    SimulatedCheckpointOut,
    SimulationCatalogOut,
    SimulationIn,
    SimulationOut,
)

router = APIRouter(tags=["simulations"])

SimulationId = Annotated[
    str, Path(max_length=100, pattern=r"^[^\x00]*$", description="Id of a simulation.", examples=["s3f5c1e0a9b7d2468"])
]
RunNumber = Annotated[int, Path(ge=0, le=1, description="0 for the first protocol, 1 for the second.", examples=[0])]
NewSimulation = Annotated[
    SimulationIn, Body(openapi_examples={"two protocols": {"value": examples.read("simulation_in")}})
]


@router.get("/simulation-catalog", responses=examples.of("simulation_catalog"))
async def read_simulation_catalog(services: Given) -> SimulationCatalogOut:
    """Return what can be simulated: job shapes, protocols, settings and limits."""
    return services.simulations.catalog()


@router.post("/simulations", status_code=202, responses=examples.of("simulation", status=202))
async def add_simulation(wanted: NewSimulation, request: Request, services: Given) -> SimulationOut:
    """Queue a simulation. The same request again returns the same simulation, with its result while that is kept.

    422 with the type `simulation-too-large` if it would exceed a limit, and 429 if the queue is full.
    """
    caller = request.client.host if request.client is not None else ""
    return await services.simulations.submit(wanted, caller=caller)


@router.post("/simulations/check", status_code=204)
async def check_simulation(wanted: NewSimulation, services: Given) -> None:
    """Refuse what `POST /simulations` would refuse of a request, with each wrong field. Nothing is queued."""
    await services.simulations.check(wanted)


@router.get("/simulations/{simulation}", responses=examples.of("simulation"))
async def read_simulation(simulation: SimulationId, services: Given) -> SimulationOut:
    """Return the state and the progress of a simulation and, when it is completed, its result."""
    return await services.simulations.get(simulation)


@router.delete("/simulations/{simulation}", status_code=204)
async def cancel_simulation(simulation: SimulationId, services: Given) -> None:
    """Cancel a simulation, for everybody who requested it. A running one stops within seconds."""
    await services.simulations.cancel(simulation)


@router.get(
    "/simulations/{simulation}/runs/{number}/checkpoints/{checkpoint}", responses=examples.of("simulated_checkpoint")
)
async def read_simulated_checkpoint(
    simulation: SimulationId, number: RunNumber, checkpoint: CheckpointId, services: Given
) -> SimulatedCheckpointOut:
    """Return one checkpoint of a completed simulation, with its subtasks and barrier events."""
    return await services.simulations.checkpoint(simulation, number, checkpoint)
