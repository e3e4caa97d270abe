"""The requests of the API client that concern simulations and backtests, which share a queue."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from backend.contracts.backtests import BacktestIn, BacktestOut
from backend.contracts.cap_curves import CapCurveIn, CapCurveOut
from backend.contracts.simulations import SimulatedCheckpointOut, SimulationCatalogOut, SimulationIn, SimulationOut
from dashboard.whatif_requests import Requests

_TIMEOUT_S: Final = 8.0
_KEPT_S: Final = 60.0


class SimulationRequests:
    """The part of the client that concerns simulations and backtests."""

    async def simulation_catalog(self: Requests) -> SimulationCatalogOut:
        """Return what can be simulated. It is cached for a minute, because only another version changes it."""
        return await self._kept_get("simulation-catalog", SimulationCatalogOut, _KEPT_S)

    async def simulation(self: Requests, simulation: str) -> SimulationOut:
        """Return a simulation with its state and, if it is completed, its result."""
        return await self._get(f"simulations/{_quoted(simulation)}", SimulationOut)

    async def simulated(self: Requests, simulation: str) -> SimulationOut:
        """Return a simulation that has ended. The response may be a few seconds old."""
        return await self._kept_get(f"simulations/{_quoted(simulation)}", SimulationOut)

    async def simulated_checkpoint(
        self: Requests, simulation: str, run: int, checkpoint: int
    ) -> SimulatedCheckpointOut:
        """Return one checkpoint of a completed simulation. It is cached, because it does not change."""
        path = f"simulations/{_quoted(simulation)}/runs/{run}/checkpoints/{checkpoint}"
        return await self._kept_get(path, SimulatedCheckpointOut, _KEPT_S)

    async def run_simulation(self: Requests, wanted: SimulationIn) -> SimulationOut:
        """Queue a simulation. If the API still has the result of the same request, return this result."""
        return await self._send("POST", "simulations", wanted, SimulationOut)

    async def check_simulation(self: Requests, wanted: SimulationIn) -> None:
        """Have the API check a request. It raises ``ApiRefusedError`` with the fields that are wrong."""
        content = wanted.model_dump_json().encode()
        await self._request("POST", "simulations/check", content, _TIMEOUT_S)

    async def cancel_simulation(self: Requests, simulation: str) -> None:
        """Cancel a simulation."""
        await self._request("DELETE", f"simulations/{_quoted(simulation)}", None, _TIMEOUT_S)

    async def run_cap_curve(self: Requests, wanted: CapCurveIn) -> CapCurveOut:
        """Queue a curve over the cap. If the API still has the result of the same request, return this result."""
        return await self._send("POST", "cap-curves", wanted, CapCurveOut)

    async def cap_curve(self: Requests, curve: str) -> CapCurveOut:
        """Return a curve with its state and, if it is completed, its points."""
        return await self._get(f"cap-curves/{_quoted(curve)}", CapCurveOut)

    async def cancel_cap_curve(self: Requests, curve: str) -> None:
        """Cancel a curve."""
        await self._request("DELETE", f"cap-curves/{_quoted(curve)}", None, _TIMEOUT_S)

    async def run_backtest(self: Requests, job: str, wanted: BacktestIn) -> BacktestOut:
        """Queue a backtest. If the same request was made in the same minute, return that backtest."""
        return await self._send("POST", _path(job), wanted, BacktestOut)

    async def backtest(self: Requests, job: str, backtest: str) -> BacktestOut:
        """Return a backtest with its state and, if it is completed, its result."""
        return await self._get(f"{_path(job)}/{_quoted(backtest)}", BacktestOut)

    async def cancel_backtest(self: Requests, job: str, backtest: str) -> None:
        """Cancel a backtest."""
        await self._request("DELETE", f"{_path(job)}/{_quoted(backtest)}", None, _TIMEOUT_S)


def _path(job: str) -> str:
    return f"jobs/{_quoted(job)}/backtests"


def _quoted(part: str) -> str:
    return quote(part, safe="")
