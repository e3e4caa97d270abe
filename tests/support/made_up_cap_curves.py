"""A fake of the API's curves over the cap: a queue with one worker, in which each reading advances the state.

The points are real: the runtime runs each request once for all tests of a process.
"""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from typing import Any

import httpx

from backend.contracts.cap_curves import CapCurveIn, CapCurveOut, CapPointOut, cap_curve_id_of
from backend.contracts.simulations import SimulationState
from backend.services.simulations.cap_curves import KIND, check_curve, run
from backend.services.simulations.simulating import Progress
from tests.support.made_up_queues import MadeUpQueue

_KEPT = timedelta(days=1)


@cache
def points_of(request_json: str) -> list[CapPointOut]:
    """Return the points of a request, given as JSON. They are computed once."""
    request = CapCurveIn.model_validate_json(request_json)
    found = run({"kind": KIND, "request": request.model_dump(mode="json")}, Progress())
    return [CapPointOut.model_validate(p) for p in found.runs]


class MadeUpCapCurves(MadeUpQueue[CapCurveOut]):
    """Fake curves."""

    what = "curve"

    def answer(self, method: str, parts: list[str], body: bytes) -> Any:
        """Respond to a request, or return None if it is not about curves."""
        match method, parts:
            case "POST", ["cap-curves"]:
                return self._submit(CapCurveIn.model_validate_json(body))
            case "GET", ["cap-curves", name]:
                return self.read(name)
            case "DELETE", ["cap-curves", name]:
                self.cancel(name)
                return httpx.Response(204)
            case _:
                return None

    def _submit(self, request: CapCurveIn) -> CapCurveOut:
        check_curve(request)
        name = cap_curve_id_of(request)
        if name not in self.known or self.known[name].state in (SimulationState.FAILED, SimulationState.CANCELLED):
            self.known[name] = CapCurveOut(
                id=name, request=request, state=SimulationState.QUEUED, progress_ratio=0.0, queue_position=1,
                queued_at=self._now(), started_at=None, ended_at=None, expires_at=None, as_of=self._now(),
            )  # fmt: skip
        return self.known[name]

    def complete(self, name: str) -> None:
        """Give a curve its points."""
        now, found = self._now(), self.of(name)
        points = points_of(found.request.model_dump_json())
        ended = {"ended_at": now, "expires_at": now + _KEPT, "queue_position": None}
        self.set(name, state=SimulationState.COMPLETED, progress_ratio=1.0, points=points, started_at=now, **ended)
