"""The routes for backtests of a job."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Path, Request

from backend.api import examples
from backend.api.deps import Given, JobId
from backend.contracts.backtests import BacktestIn, BacktestOut

router = APIRouter(prefix="/jobs/{job}/backtests", tags=["backtests"])

BacktestId = Annotated[
    str, Path(max_length=100, pattern=r"^[^\x00]*$", description="Id of a backtest.", examples=["b3f5c1e0a9b7d2468"])
]
Wanted = Annotated[BacktestIn, Body(openapi_examples={"verdict and advice": {"value": examples.read("backtest_in")}})]


@router.post("", status_code=202, responses=examples.of("backtest", status=202))
async def add_backtest(job: JobId, wanted: Wanted, request: Request, services: Given) -> BacktestOut:
    """Queue a replay of warnings, verdicts and advice over the newest stored checkpoints of a job.

    It counts as a simulation. 429 if the queue is full.
    """
    caller = request.client.host if request.client is not None else ""
    return await services.backtests.submit(job, wanted, caller=caller)


@router.get("/{backtest}", responses=examples.of("backtest"))
async def read_backtest(job: JobId, backtest: BacktestId, services: Given) -> BacktestOut:
    """Return the state and the progress of a backtest and, when it is completed, its result."""
    return await services.backtests.get(job, backtest)


@router.delete("/{backtest}", status_code=204)
async def cancel_backtest(job: JobId, backtest: BacktestId, services: Given) -> None:
    """Cancel a backtest. A running one stops within seconds."""
    await services.backtests.cancel(job, backtest)
