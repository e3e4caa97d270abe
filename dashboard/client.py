"""A typed client of Barrierscope's API, the dashboard's only source of data.

The application has one client. If the API runs in the same process, the transport is ``httpx.ASGITransport``; otherwise
it is a connection pool. Every failure becomes one of two errors, with a sentence for the page.

The client caches a checkpoint and its barriers for a few seconds, because a dragged scrubber asks for the same
checkpoint many times a second.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError

from backend.contracts import alerts as wire
from backend.contracts import api
from backend.contracts.advice import CardOut, DismissIn, JobAdviceOut
from backend.contracts.backpressure import BackpressureOut
from backend.contracts.barriers import BarriersOut
from backend.contracts.changes import ChangePointOut
from backend.contracts.progress import ProgressOut
from backend.contracts.rollups import RollupHourOut
from backend.domain.errors import ApiRefusedError, ApiUnavailableError

M = TypeVar("M", bound=BaseModel)

_TIMEOUT_S = 10.0
# A connection test waits for another server. The API limits that wait.
_TEST_TIMEOUT_S = 30.0
_KEPT_MAX = 32
# Short, because late barriers of an expired checkpoint arrive for one more timeout.
_KEPT_S = 3.0
# Long enough that all parts of a page show the same reading of an open checkpoint.
_KEPT_OPEN_S = 0.8
_LIST_LIMIT = 200


class ApiClient:
    """Typed reads and writes of ``/api/v1``.

    Every method raises ``ApiUnavailableError`` if there is no valid answer, and ``ApiRefusedError``, with the message
    of the problem document, if the API refuses.
    """

    def __init__(
        self,
        *,
        transport: httpx.AsyncBaseTransport | None,
        base_url: str,
        token: str | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._http = httpx.AsyncClient(
            transport=transport,
            base_url=base_url,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=_TIMEOUT_S,
        )
        self._kept: OrderedDict[str, tuple[float, BaseModel]] = OrderedDict()
        self._monotonic = monotonic

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    # --- reads ----------------------------------------------------------------------------------------------------

    async def status(self) -> api.StatusOut:
        """The state of the service."""
        return await self._get("status", api.StatusOut)

    async def targets(self) -> api.Page[api.TargetOut]:
        """The targets."""
        return await self._get(f"targets?limit={_LIST_LIMIT}", api.Page[api.TargetOut])

    async def jobs(self) -> api.Page[api.JobOut]:
        """All jobs, most urgent first."""
        page = await self._get(f"jobs?limit={_LIST_LIMIT}", api.Page[api.JobOut])
        items, cursor = list(page.items), page.next
        while cursor:
            more = await self._get(f"jobs?limit={_LIST_LIMIT}&cursor={_quote(cursor)}", api.Page[api.JobOut])
            items += more.items
            cursor = more.next if more.next != cursor else None
        return api.Page[api.JobOut](items=items, as_of=page.as_of)

    async def job(self, job: str) -> api.JobDetailOut:
        """One job with its graph."""
        return await self._get(f"jobs/{_quote(job)}", api.JobDetailOut)

    async def graph(self, job: str) -> api.JobDetailOut:
        """One job, up to a few seconds old. Its graph rarely changes."""
        return await self._kept_get(f"jobs/{_quote(job)}", api.JobDetailOut)

    async def checkpoints(self, job: str) -> api.Page[api.CheckpointOut]:
        """The newest checkpoints of a job, from all its runs."""
        return await self._get(f"jobs/{_quote(job)}/checkpoints?limit={_LIST_LIMIT}", api.Page[api.CheckpointOut])

    async def events(self, job: str) -> api.Page[api.JobEventOut]:
        """The events of a job, such as restarts and changes of settings."""
        return await self._get(f"jobs/{_quote(job)}/events?limit={_LIST_LIMIT}", api.Page[api.JobEventOut])

    async def change_points(self, job: str) -> api.Page[ChangePointOut]:
        """The instants at which the duration of a job's checkpoints changed."""
        return await self._get(f"jobs/{_quote(job)}/change-points", api.Page[ChangePointOut])

    async def rollups(self, job: str) -> api.Page[RollupHourOut]:
        """The hourly rollups of a job, for the last 7 days."""
        return await self._get(f"jobs/{_quote(job)}/rollups?limit={_LIST_LIMIT}", api.Page[RollupHourOut])

    async def backpressure(
        self, job: str, since: datetime | None = None, until: datetime | None = None
    ) -> BackpressureOut:
        """The latest reading of each vertex and, if a range is given, the readings in it."""
        ends = (("from", since), ("to", until))
        query = "&".join(f"{name}={_quote(at.isoformat())}" for name, at in ends if at is not None)
        return await self._get(f"jobs/{_quote(job)}/backpressure{'?' + query if query else ''}", BackpressureOut)

    async def checkpoint(self, job: str, run: str, checkpoint: int) -> api.CheckpointDetailOut:
        """One checkpoint with its subtasks."""
        return await self._kept_get(_path(job, run, checkpoint), api.CheckpointDetailOut)

    async def progress(self, job: str, run: str, checkpoint: int) -> ProgressOut:
        """The progress of one checkpoint."""
        return await self._get(_path(job, run, checkpoint) + "/progress", ProgressOut)

    async def barriers(self, job: str, run: str, checkpoint: int, *, is_over: bool) -> BarriersOut:
        """The barrier events of one checkpoint. Unless ``is_over``, they are cached for one refresh only."""
        kept_s = _KEPT_S if is_over else _KEPT_OPEN_S
        return await self._kept_get(_path(job, run, checkpoint) + "/barriers", BarriersOut, kept_s)

    async def alerts(
        self, *, states: Sequence[str] = (), job: str | None = None, limit: int = _LIST_LIMIT
    ) -> api.Page[wire.AlertOut]:
        """Alerts, newest first."""
        query = "".join(f"&state={s}" for s in states) + (f"&job={_quote(job)}" if job is not None else "")
        return await self._get(f"alerts?limit={limit}{query}", api.Page[wire.AlertOut])

    async def open_alerts_or_none(self, job: str) -> list[wire.AlertOut] | None:
        """The firing and pending alerts of a job; None after an error, which another part of the page shows."""
        try:
            return (await self.alerts(states=("firing", "pending"), job=job)).items
        except (ApiRefusedError, ApiUnavailableError):
            return None

    async def alert(self, alert: str) -> wire.AlertDetailOut:
        """One alert with its history."""
        return await self._get(f"alerts/{_quote(alert)}", wire.AlertDetailOut)

    async def alert_rules(self) -> api.Page[wire.AlertRuleOut]:
        """Every rule."""
        return await self._get("alert-rules", api.Page[wire.AlertRuleOut])

    async def runbook(self, rule: str) -> wire.RunbookOut:
        """The runbook of a rule."""
        return await self._kept_get(f"alert-rules/{_quote(rule)}/runbook", wire.RunbookOut)

    async def silences(self) -> api.Page[wire.SilenceOut]:
        """Silences, the one that ends last first."""
        return await self._get(f"silences?limit={_LIST_LIMIT}", api.Page[wire.SilenceOut])

    async def receivers(self) -> api.Page[wire.ReceiverOut]:
        """The receivers of alerts."""
        return await self._get(f"receivers?limit={_LIST_LIMIT}", api.Page[wire.ReceiverOut])

    async def advice(self, job: str) -> JobAdviceOut:
        """Recommendations for a job, or the reasons for giving none."""
        return await self._get(f"jobs/{_quote(job)}/advice", JobAdviceOut)

    async def recommendations(self, job: str) -> api.Page[CardOut]:
        """The newest recommendations for a job, in any state."""
        return await self._get(f"jobs/{_quote(job)}/recommendations?limit=20", api.Page[CardOut])

    # --- writes ---------------------------------------------------------------------------------------------------

    async def test_target(self, target: api.TargetIn) -> api.TargetTestOut:
        """Test the connection to a target. Nothing is stored."""
        return await self._send("POST", "targets/test", target, api.TargetTestOut, timeout_s=_TEST_TIMEOUT_S)

    async def add_target(self, target: api.TargetIn) -> api.TargetOut:
        """Add a target."""
        return await self._send("POST", "targets", target, api.TargetOut)

    async def enable_target(self, target: str, *, is_enabled: bool) -> api.TargetOut:
        """Pause or resume a target."""
        patch = api.TargetPatch(is_enabled=is_enabled)
        return await self._send("PATCH", f"targets/{_quote(target)}", patch, api.TargetOut)

    async def remove_target(self, target: str) -> None:
        """Remove a target."""
        await self._request("DELETE", f"targets/{_quote(target)}", None, _TIMEOUT_S)

    async def change_alert_rule(self, rule: str, patch: wire.AlertRulePatch, *, version: int) -> wire.AlertRuleOut:
        """Change a rule. The API refuses if the rule no longer has this version."""
        etag = {"If-Match": f'"{version}"'}
        return await self._send("PATCH", f"alert-rules/{_quote(rule)}", patch, wire.AlertRuleOut, headers=etag)

    async def add_silence(self, silence: wire.SilenceIn) -> wire.SilenceOut:
        """Add a silence."""
        return await self._send("POST", "silences", silence, wire.SilenceOut)

    async def end_silence(self, silence: str) -> None:
        """End a silence."""
        await self._request("DELETE", f"silences/{_quote(silence)}", None, _TIMEOUT_S)

    async def add_receiver(self, receiver: wire.ReceiverIn) -> wire.ReceiverOut:
        """Add a receiver."""
        return await self._send("POST", "receivers", receiver, wire.ReceiverOut)

    async def remove_receiver(self, receiver: str) -> None:
        """Remove a receiver."""
        await self._request("DELETE", f"receivers/{_quote(receiver)}", None, _TIMEOUT_S)

    async def test_receiver(self, receiver: str) -> wire.ReceiverTestOut:
        """Send a test message to a receiver."""
        answer = await self._request("POST", f"receivers/{_quote(receiver)}/test", None, _TEST_TIMEOUT_S)
        return _read(answer, wire.ReceiverTestOut)

    async def accept_advice(self, job: str, card: str) -> CardOut:
        """Accept a recommendation."""
        return _read(await self._request("POST", _card_path(job, card, "accept"), None, _TIMEOUT_S), CardOut)

    async def dismiss_advice(self, job: str, card: str, reason: str) -> CardOut:
        """Dismiss a recommendation."""
        body = DismissIn(reason=reason)
        return await self._send("POST", _card_path(job, card, "dismiss"), body, CardOut)

    async def apply_advice(self, job: str, card: str) -> CardOut:
        """Apply a recommendation to the target."""
        answer = await self._request("POST", _card_path(job, card, "apply"), None, _TEST_TIMEOUT_S)
        return _read(answer, CardOut)

    # --- how ------------------------------------------------------------------------------------------------------

    async def _kept_get(self, path: str, model: type[M], kept_s: float = _KEPT_S) -> M:
        found = self._kept.get(path)
        if found is not None and self._monotonic() < found[0] and isinstance(found[1], model):
            return found[1]
        value = await self._get(path, model)
        if isinstance(value, api.CheckpointDetailOut) and not value.status.is_terminal:
            kept_s = min(kept_s, _KEPT_OPEN_S)
        self._kept[path] = (self._monotonic() + kept_s, value)
        self._kept.move_to_end(path)
        if len(self._kept) > _KEPT_MAX:
            self._kept.popitem(last=False)
        return value

    async def _get(self, path: str, model: type[M]) -> M:
        return _read(await self._request("GET", path, None, _TIMEOUT_S), model)

    async def _send(
        self,
        method: str,
        path: str,
        body: BaseModel,
        model: type[M],
        *,
        timeout_s: float = _TIMEOUT_S,
        headers: Mapping[str, str] | None = None,
    ) -> M:
        content = body.model_dump_json(exclude_unset=True).encode()
        return _read(await self._request(method, path, content, timeout_s, headers), model)

    async def _request(
        self, method: str, path: str, content: bytes | None, timeout_s: float, more: Mapping[str, str] | None = None
    ) -> httpx.Response:
        headers = ({"Content-Type": "application/json"} if content is not None else {}) | dict(more or {})
        try:
            answer = await self._http.request(
                method, f"/api/v1/{path}", content=content, headers=headers, timeout=timeout_s
            )
        except httpx.TimeoutException:
            raise ApiUnavailableError(f"Barrierscope's API did not answer within {timeout_s:g} s.") from None
        except httpx.HTTPError as error:
            raise ApiUnavailableError(f"Barrierscope's API does not answer ({type(error).__name__}).") from None
        if answer.is_success:
            return answer
        raise _refusal(answer)


def _card_path(job: str, card: str, verb: str) -> str:
    return f"jobs/{_quote(job)}/recommendations/{_quote(card)}/{verb}"


def _path(job: str, run: str, checkpoint: int) -> str:
    return f"jobs/{_quote(job)}/runs/{_quote(run)}/checkpoints/{checkpoint}"


def _quote(part: str) -> str:
    return quote(part, safe="")


def _read(answer: httpx.Response, model: type[M]) -> M:
    try:
        return model.model_validate_json(answer.content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(p) for p in first["loc"])
        raise ApiUnavailableError(f"Barrierscope's API sent an invalid answer ({where}: {first['msg']}).") from None


def _refusal(answer: httpx.Response) -> ApiRefusedError | ApiUnavailableError:
    try:
        problem = api.Problem.model_validate_json(answer.content)
    except ValidationError:
        return ApiUnavailableError(f"Barrierscope's API answered HTTP {answer.status_code} without a reason.")
    fields = "; ".join(
        f"{e.pointer.lstrip('#/') or 'body'}: {e.detail}" + (f"; allowed: {e.allowed}" if e.allowed else "")
        for e in problem.errors
    )
    text = f"{problem.detail} ({fields})" if fields and fields not in problem.detail else problem.detail
    return ApiRefusedError(text) if answer.status_code < 500 else ApiUnavailableError(text)
