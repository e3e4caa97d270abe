"""The requests of the API client that concern what-ifs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel

from backend.contracts.advice import CardOut, DryRunOut
from backend.contracts.simulations import SimulatedCheckpointOut
from backend.contracts.whatif import ConfirmationOut, WhatIfApplyIn, WhatIfIn, WhatIfOut

M = TypeVar("M", bound=BaseModel)
_TIMEOUT_S: Final = 8.0
# The first what-if on a job takes longer, because its model is built.
_LONG_TIMEOUT_S: Final = 30.0
_KEPT_S: Final = 60.0


class Requests(Protocol):
    """What these requests need of the client."""

    async def _get(self, path: str, model: type[M]) -> M: ...

    async def _kept_get(self, path: str, model: type[M], kept_s: float = ...) -> M: ...

    async def _send(
        self,
        method: str,
        path: str,
        body: BaseModel,
        model: type[M],
        *,
        timeout_s: float = ...,
        headers: Mapping[str, str] | None = None,
    ) -> M: ...

    async def _request(
        self, method: str, path: str, content: bytes | None, timeout_s: float, more: Mapping[str, str] | None = None
    ) -> httpx.Response: ...


class WhatIfRequests:
    """The part of the client that concerns what-ifs."""

    async def what_if(self: Requests, job: str, wanted: WhatIfIn) -> WhatIfOut:
        """Return what is predicted for a what-if. The first request for a job takes seconds, because it is modelled."""
        path = f"jobs/{quote(job, safe='')}/whatif"
        return await self._send("POST", path, wanted, WhatIfOut, timeout_s=_LONG_TIMEOUT_S)

    async def confirmation(self: Requests, job: str, confirmation: str) -> ConfirmationOut:
        """Return the state of a confirmation and, if it is completed, its result."""
        return await self._get(_confirmation_path(job, confirmation), ConfirmationOut)

    async def confirmed(self: Requests, job: str, confirmation: str) -> ConfirmationOut:
        """Return a confirmation that has ended. The response may be a few seconds old."""
        return await self._kept_get(_confirmation_path(job, confirmation), ConfirmationOut)

    async def confirmed_checkpoint(
        self: Requests, job: str, confirmation: str, run: int, checkpoint: int
    ) -> SimulatedCheckpointOut:
        """Return one checkpoint of a completed confirmation. It is cached, because it does not change."""
        path = f"{_confirmation_path(job, confirmation)}/runs/{run}/checkpoints/{checkpoint}"
        return await self._kept_get(path, SimulatedCheckpointOut, _KEPT_S)

    async def cancel_confirmation(self: Requests, job: str, confirmation: str) -> None:
        """Cancel a confirmation."""
        await self._request("DELETE", _confirmation_path(job, confirmation), None, _TIMEOUT_S)

    async def apply_what_if(
        self: Requests,
        job: str,
        settings: Mapping[str, str],
        model_id: str | None = None,
        *,
        is_guarded: bool = False,
        author: str | None,
    ) -> CardOut:
        """Change the settings of the running job, and keep the prediction of the answer with this ``model_id``."""
        path = f"jobs/{quote(job, safe='')}/whatif/apply"
        body = WhatIfApplyIn(settings=dict(settings), model_id=model_id, is_guarded=is_guarded, author=author)
        return await self._send("POST", path, body, CardOut, timeout_s=_LONG_TIMEOUT_S)

    async def try_what_if(self: Requests, job: str, settings: Mapping[str, str]) -> DryRunOut:
        """Return what applying a what-if would send where, and what would refuse it. Nothing changes."""
        path, body = f"jobs/{quote(job, safe='')}/whatif/dry-run", WhatIfApplyIn(settings=dict(settings))
        return await self._send("POST", path, body, DryRunOut, timeout_s=_LONG_TIMEOUT_S)

    async def accept_what_if(
        self: Requests, job: str, settings: Mapping[str, str], model_id: str | None = None, *, author: str | None
    ) -> CardOut:
        """Keep the prediction of a change that a person makes, from the answer with this ``model_id``."""
        path = f"jobs/{quote(job, safe='')}/whatif/accept"
        body = WhatIfApplyIn(settings=dict(settings), model_id=model_id, author=author)
        return await self._send("POST", path, body, CardOut, timeout_s=_LONG_TIMEOUT_S)


def _confirmation_path(job: str, confirmation: str) -> str:
    return f"jobs/{quote(job, safe='')}/whatif/confirmations/{quote(confirmation, safe='')}"
