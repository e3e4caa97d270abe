"""The dashboard's only source of data: our own API, over HTTP, typed by ``backend.contracts.api``.

One client lives as long as the application. In one process with the API its transport is ``httpx.ASGITransport``;
as a pod of its own it is a connection pool. Every failure becomes one of two errors, with a sentence for the page.

What is over cannot change, so terminal checkpoints and their barriers are kept for a while: a scrubber that is dragged
asks for the same one many times a second.
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
# Testing a connection waits for a stranger; the API bounds it itself.
_TEST_TIMEOUT_S = 30.0
_KEPT_MAX = 32
# Short, for an expired checkpoint gains late barriers for one more timeout.
_KEPT_S = 3.0
# The parts of a page ask for an open checkpoint within one refresh and shall show the same.
_KEPT_OPEN_S = 0.8
_LIST_LIMIT = 200


class ApiClient:
    """Typed reads and writes of ``/api/v1``.

    Every method raises ``ApiUnavailableError`` where the API does not answer or not as it should, and
    ``ApiRefusedError`` where it refuses (its message is the problem document's).
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
        """Let connections go."""
        await self._http.aclose()

    # --- reads ----------------------------------------------------------------------------------------------------

    async def status(self) -> api.StatusOut:
        """The service itself."""
        return await self._get("status", api.StatusOut)

    async def targets(self) -> api.Page[api.TargetOut]:
        """The targets."""
        return await self._get(f"targets?limit={_LIST_LIMIT}", api.Page[api.TargetOut])

    async def jobs(self) -> api.Page[api.JobOut]:
        """The fleet, most urgent first, all pages of it."""
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
        """One job as it was a moment ago: for its graph, which hardly changes."""
        return await self._kept_get(f"jobs/{_quote(job)}", api.JobDetailOut)

    async def checkpoints(self, job: str) -> api.Page[api.CheckpointOut]:
        """A job's newest checkpoints over all its runs."""
        return await self._get(f"jobs/{_quote(job)}/checkpoints?limit={_LIST_LIMIT}", api.Page[api.CheckpointOut])

    async def events(self, job: str) -> api.Page[api.JobEventOut]:
        """What happened to a job."""
        return await self._get(f"jobs/{_quote(job)}/events?limit={_LIST_LIMIT}", api.Page[api.JobEventOut])

    async def change_points(self, job: str) -> api.Page[ChangePointOut]:
        """When a job's checkpoints began to take another time."""
        return await self._get(f"jobs/{_quote(job)}/change-points", api.Page[ChangePointOut])

    async def rollups(self, job: str) -> api.Page[RollupHourOut]:
        """A job's hours of the last 7 days."""
        return await self._get(f"jobs/{_quote(job)}/rollups?limit={_LIST_LIMIT}", api.Page[RollupHourOut])

    async def backpressure(
        self, job: str, since: datetime | None = None, until: datetime | None = None
    ) -> BackpressureOut:
        """The latest reading of each vertex; with a range, the readings along it as well."""
        ends = (("from", since), ("to", until))
        query = "&".join(f"{name}={_quote(at.isoformat())}" for name, at in ends if at is not None)
        return await self._get(f"jobs/{_quote(job)}/backpressure{'?' + query if query else ''}", BackpressureOut)

    async def checkpoint(self, job: str, run: str, checkpoint: int) -> api.CheckpointDetailOut:
        """One checkpoint down to its subtasks."""
        return await self._kept_get(_path(job, run, checkpoint), api.CheckpointDetailOut)

    async def progress(self, job: str, run: str, checkpoint: int) -> ProgressOut:
        """How far one checkpoint has come."""
        return await self._get(_path(job, run, checkpoint) + "/progress", ProgressOut)

    async def barriers(self, job: str, run: str, checkpoint: int, *, is_over: bool) -> BarriersOut:
        """Barrier events of one checkpoint; those of one in progress are kept only within a refresh."""
        kept_s = _KEPT_S if is_over else _KEPT_OPEN_S
        return await self._kept_get(_path(job, run, checkpoint) + "/barriers", BarriersOut, kept_s)

    async def alerts(
        self, *, states: Sequence[str] = (), job: str | None = None, limit: int = _LIST_LIMIT
    ) -> api.Page[wire.AlertOut]:
        """Alerts, newest first."""
        query = "".join(f"&state={s}" for s in states) + (f"&job={_quote(job)}" if job is not None else "")
        return await self._get(f"alerts?limit={limit}{query}", api.Page[wire.AlertOut])

    async def open_alerts_or_none(self, job: str) -> list[wire.AlertOut] | None:
        """A job's firing and pending alerts; None where the API does not answer: another part of the page says so."""
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
        """What to do when a rule fires."""
        return await self._kept_get(f"alert-rules/{_quote(rule)}/runbook", wire.RunbookOut)

    async def silences(self) -> api.Page[wire.SilenceOut]:
        """Silences, the one that lasts longest first."""
        return await self._get(f"silences?limit={_LIST_LIMIT}", api.Page[wire.SilenceOut])

    async def receivers(self) -> api.Page[wire.ReceiverOut]:
        """Where alerts are sent."""
        return await self._get(f"receivers?limit={_LIST_LIMIT}", api.Page[wire.ReceiverOut])

    async def advice(self, job: str) -> JobAdviceOut:
        """What is advised on a job, and why not where nothing is."""
        return await self._get(f"jobs/{_quote(job)}/advice", JobAdviceOut)

    async def recommendations(self, job: str) -> api.Page[CardOut]:
        """The newest of what was ever advised on it."""
        return await self._get(f"jobs/{_quote(job)}/recommendations?limit=20", api.Page[CardOut])

    # --- writes ---------------------------------------------------------------------------------------------------

    async def test_target(self, target: api.TargetIn) -> api.TargetTestOut:
        """Try a target without storing anything."""
        return await self._send("POST", "targets/test", target, api.TargetTestOut, timeout_s=_TEST_TIMEOUT_S)

    async def add_target(self, target: api.TargetIn) -> api.TargetOut:
        """Add a target."""
        return await self._send("POST", "targets", target, api.TargetOut)

    async def enable_target(self, target: str, *, is_enabled: bool) -> api.TargetOut:
        """Pause a target or go on reading it."""
        patch = api.TargetPatch(is_enabled=is_enabled)
        return await self._send("PATCH", f"targets/{_quote(target)}", patch, api.TargetOut)

    async def remove_target(self, target: str) -> None:
        """Remove a target."""
        await self._request("DELETE", f"targets/{_quote(target)}", None, _TIMEOUT_S)

    async def change_alert_rule(self, rule: str, patch: wire.AlertRulePatch, *, version: int) -> wire.AlertRuleOut:
        """Change a rule that is still of this version."""
        etag = {"If-Match": f'"{version}"'}
        return await self._send("PATCH", f"alert-rules/{_quote(rule)}", patch, wire.AlertRuleOut, headers=etag)

    async def add_silence(self, silence: wire.SilenceIn) -> wire.SilenceOut:
        """Add a silence."""
        return await self._send("POST", "silences", silence, wire.SilenceOut)

    async def end_silence(self, silence: str) -> None:
        """Let a silence end now."""
        await self._request("DELETE", f"silences/{_quote(silence)}", None, _TIMEOUT_S)

    async def add_receiver(self, receiver: wire.ReceiverIn) -> wire.ReceiverOut:
        """Send alerts there from now on."""
        return await self._send("POST", "receivers", receiver, wire.ReceiverOut)

    async def remove_receiver(self, receiver: str) -> None:
        """Send it nothing any more."""
        await self._request("DELETE", f"receivers/{_quote(receiver)}", None, _TIMEOUT_S)

    async def test_receiver(self, receiver: str) -> wire.ReceiverTestOut:
        """Send a test message."""
        answer = await self._request("POST", f"receivers/{_quote(receiver)}/test", None, _TEST_TIMEOUT_S)
        return _read(answer, wire.ReceiverTestOut)

    async def accept_advice(self, job: str, card: str) -> CardOut:
        """Say that the change will be made."""
        return _read(await self._request("POST", _card_path(job, card, "accept"), None, _TIMEOUT_S), CardOut)

    async def dismiss_advice(self, job: str, card: str, reason: str) -> CardOut:
        """Say why it is not wanted."""
        body = DismissIn(reason=reason)
        return await self._send("POST", _card_path(job, card, "dismiss"), body, CardOut)

    async def apply_advice(self, job: str, card: str) -> CardOut:
        """Make the change on the target."""
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
        raise ApiUnavailableError(f"Barrierscope's API gave an unreadable answer ({where}: {first['msg']}).") from None


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
