"""Sends changes to a running job: to its target, if the target's address is still allowed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import urlsplit

from sqlalchemy.ext.asyncio import AsyncEngine

from backend.domain.connection import Reach
from backend.domain.errors import BarrierscopeError, ConflictError, InvalidInputError, TargetProtocolError
from backend.domain.job_request import CheckSettings, JobRequest
from backend.domain.target import TargetOrigin
from backend.services.targets.targets import check_host
from backend.store.jobs.reader import RunRecord
from backend.store.targets.targets import TargetRecord, TargetRepository

_TIMEOUT_S = 8.0
# The answers after which the same request would be refused again.
_REFUSALS: Final = {
    401: "it wants credentials that Barrierscope does not have for it",
    403: "it does not allow Barrierscope to change its jobs",
    404: "it does not know this job any more, or its version has no such request",
    405: "it, or a proxy in front of it, does not allow requests that change something",
    410: "it does not know this job any more",
    501: "its version has no such request",
}


class ChangeSettings(Protocol):
    """A function that changes settings of a running job, or sends it a request.

    The job runs as ``engine_run_id`` on the target of ``kind`` at ``url``.
    """

    async def __call__(
        self,
        url: str,
        engine_run_id: str,
        change: Mapping[str, str] | JobRequest,
        timeout_s: float,
        token: str | None,
        *,
        kind: str,
        reach: Reach,
    ) -> None:
        """Make the change. ``reach`` has the allowed addresses and the credentials.

        Raises:
            UpstreamError: the target does not make the change.
            ConflictError: the target's engine cannot do this while the job runs.
        """
        ...


@dataclass(frozen=True, slots=True)
class Tried:
    """The answer to a change that was tried out. ``is_checked`` is whether the target answered.

    ``refusal`` is why the change would be refused; None if the target would make it.
    """

    target: TargetRecord
    is_checked: bool
    refusal: str | None


class JobChanger:
    """Sends changes to running jobs. ``token`` authorises changes to the built-in runtime."""

    def __init__(self, engine: AsyncEngine, limits: Reach, change: ChangeSettings | None, token: str | None) -> None:
        self._engine = engine
        self._limits = limits
        self._change = change
        self._token = token

    async def send(self, run: RunRecord, change: Mapping[str, str] | JobRequest) -> None:
        """Send a change to the target of a run.

        Raises:
            ConflictError: this process cannot change jobs, the engine cannot do this while the job runs, or the target
                refuses the request for good.
            InvalidInputError: the target's address is no longer allowed, or the target refuses the change.
            TargetUnavailableError: the target does not respond.
            TargetProtocolError: the target's response is malformed.
        """
        target, reach = await reachable(self._engine, self._limits, run.target_id)
        if self._change is None:
            raise ConflictError("this process cannot change the settings of targets", kind="apply-unavailable")
        # Only the built-in target gets the token, because its address comes from the configuration. Any other target
        # may belong to a third party.
        token = self._token if target.origin is TargetOrigin.BUILT_IN else None
        try:
            await self._change(target.url, run.engine_run_id, change, _TIMEOUT_S, token, kind=target.kind, reach=reach)
        except TargetProtocolError as error:
            if (refusal := _REFUSALS.get(error.status or 0)) is None:
                raise
            text = f"the target {target.name} answered HTTP {error.status}: {refusal} ({error.reason})"
            raise ConflictError(text, kind="target-refused") from error

    async def target_of(self, run: RunRecord) -> TargetRecord:
        """Return the target of a run. Raises UnknownEntityError if it was removed."""
        return await TargetRepository(self._engine).get(run.target_id)

    async def try_out(self, run: RunRecord, change: Mapping[str, str]) -> Tried:
        """Ask the target of a run whether it would make a change. Nothing changes.

        Raises:
            UnknownEntityError: the target was removed.
        """
        target = await self.target_of(run)
        try:
            await reachable(self._engine, self._limits, run.target_id)
        except BarrierscopeError as error:
            return Tried(target, is_checked=False, refusal=str(error))
        try:
            await self.send(run, CheckSettings(tuple(sorted(change.items()))))
        except (InvalidInputError, ConflictError) as error:
            return Tried(target, is_checked=isinstance(error, InvalidInputError), refusal=str(error))
        except BarrierscopeError as error:
            return Tried(target, is_checked=False, refusal=str(error))
        return Tried(target, is_checked=True, refusal=None)


async def reachable(engine: AsyncEngine, limits: Reach, target_id: str) -> tuple[TargetRecord, Reach]:
    """Return a target, and what is needed to connect to it. ``limits`` apply to targets of the API only.

    Raises:
        UnknownEntityError: the target was removed.
        InvalidInputError: the target's address is no longer allowed.
    """
    target = await TargetRepository(engine).get(target_id)
    reach = limits.towards(target.connection, target.origin)
    if target.origin.is_trusted:
        return target, reach
    # The target's address was allowed when it was added. The allow-list may have changed since, so the address is
    # checked again.
    check_host(limits.rules, urlsplit(target.url).hostname or "")
    return target, reach
