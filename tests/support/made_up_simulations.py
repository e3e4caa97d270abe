"""A fake of the API's simulations: a queue with one worker, in which each reading advances the state.

The results are real: the runtime runs each request once for all tests of a process.
"""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from typing import Any

import httpx

from backend.contracts.simulations import SimulationIn, SimulationOut, SimulationState, simulation_id_of
from backend.services.simulations.catalog import catalog, plan
from backend.services.simulations.simulating import Progress, Result, run, unpacked
from tests.support.made_up_queues import MadeUpQueue

_KEPT = timedelta(days=1)


@cache
def result_of(request_json: str) -> Result:
    """Return the result of a request, given as JSON. It is computed once."""
    return run(SimulationIn.model_validate_json(request_json), Progress())


class MadeUpSimulations(MadeUpQueue[SimulationOut]):
    """Fake simulations."""

    what = "simulation"

    def answer(self, method: str, parts: list[str], body: bytes) -> Any:
        """Respond to a request, or return None if it is not about simulations."""
        match method, parts:
            case "GET", ["simulation-catalog"]:
                return catalog()
            case "POST", ["simulations"]:
                return self._submit(SimulationIn.model_validate_json(body))
            case "POST", ["simulations", "check"]:
                plan(SimulationIn.model_validate_json(body))
                return httpx.Response(204)
            case "GET", ["simulations", name]:
                return self.read(name)
            case "DELETE", ["simulations", name]:
                self.cancel(name)
                return httpx.Response(204)
            case "GET", ["simulations", name, "runs", number, "checkpoints", checkpoint]:
                return self._checkpoint(self.of(name), int(number), int(checkpoint))
            case _:
                return None

    def add_completed(self, request: SimulationIn, *, is_example: bool = False) -> str:
        """Add a completed simulation, and return its id."""
        name = self._submit(request).id
        self.set(name, is_example=is_example)
        self.complete(name)
        return name

    def _submit(self, request: SimulationIn) -> SimulationOut:
        plan(request)
        name = simulation_id_of(request)
        if name not in self.known or self.known[name].state in (SimulationState.FAILED, SimulationState.CANCELLED):
            self.known[name] = SimulationOut(
                id=name, request=request, state=SimulationState.QUEUED, progress_ratio=0.0, queue_position=1,
                queued_at=self._now(), started_at=None, ended_at=None, expires_at=None, as_of=self._now(),
            )  # fmt: skip
        return self.known[name]

    def complete(self, name: str) -> None:
        """Give a simulation its result."""
        now, found = self._now(), self.of(name)
        runs = list(result_of(found.request.model_dump_json()).runs)
        ended = {"ended_at": now, "expires_at": now + _KEPT, "queue_position": None}
        self.set(name, state=SimulationState.COMPLETED, progress_ratio=1.0, runs=runs, started_at=now, **ended)

    def _checkpoint(self, found: SimulationOut, number: int, checkpoint: int) -> Any:
        stored = result_of(found.request.model_dump_json()).checkpoints
        one = next((s for s in stored if (s.run, s.checkpoint_id) == (number, checkpoint)), None)
        if one is None:
            raise LookupError(f"checkpoint '{number}/{checkpoint}'")
        return unpacked(one.document)
