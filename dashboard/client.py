"""A typed client of Barrierscope's API, the dashboard's only source of data.

The application has one client. If the API runs in the same process, the transport is ``httpx.ASGITransport``;
otherwise it is a connection pool. Every failure becomes one of two errors, with a sentence for the page.

The client caches a checkpoint and its barriers for a few seconds, because a user who drags a scrubber causes requests
for the same checkpoint many times a second.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar
from urllib.parse import quote, urlencode

import httpx
from pydantic import BaseModel, ValidationError

from backend.contracts import alerts as wire
from backend.contracts import api
from backend.contracts import incidents as grouped
from backend.contracts.advice import ApplyIn, CardOut, DecisionIn, DismissIn, DryRunOut, JobAdviceOut
from backend.contracts.annotations import AnnotationOut
from backend.contracts.backpressure import BackpressureOut
from backend.contracts.barriers import BarriersOut
from backend.contracts.board import BoardOut, BoardSort
from backend.contracts.causes import CausePageOut
from backend.contracts.changes import ChangePointOut
from backend.contracts.checkpoint_actions import ActionIn, ActionTakenOut
from backend.contracts.comparing import CheckpointComparisonOut
from backend.contracts.comparing_windows import WindowsComparisonOut
from backend.contracts.history import HistoryOut, UsualOut
from backend.contracts.inspection import FlameGraphOut, ThreadDumpOut
from backend.contracts.links import LinksOut
from backend.contracts.pressure_history import PressureHistoryOut
from backend.contracts.progress import ProgressOut
from backend.contracts.rollups import RollupHourOut
from backend.contracts.space_time import SpaceTimeOut
from backend.contracts.status import StatusOut
from backend.contracts.subtask_matrix import MatrixGroup, SubtaskMatrixOut
from backend.contracts.subtasks import CheckpointSubtasksOut
from backend.domain.checkpoint import SubtaskMeasure
from backend.domain.errors import ApiNotFoundError, ApiRefusedError, ApiUnavailableError
from backend.domain.inspection import StackType
from backend.domain.pressure import PressureMeasure
from backend.domain.text import capitalised
from dashboard.incidents_address import IncidentList
from dashboard.simulation_requests import SimulationRequests
from dashboard.subtask_columns import completed, may_be_completed
from dashboard.target_requests import TargetRequests
from dashboard.whatif_requests import WhatIfRequests

M = TypeVar("M", bound=BaseModel)

_TIMEOUT_S = 10.0
# A connection test waits until the API has contacted another server. The API limits how long that takes.
_TEST_TIMEOUT_S = 30.0
_KEPT_MAX = 32
# Responses are cached for a short time only, because after a checkpoint has expired, its barriers continue to arrive
# for up to one more timeout.
_KEPT_S = 3.0
# An open checkpoint is cached just long enough that all parts of a page show the same reading of it.
_KEPT_OPEN_S = 0.8
_KEPT_HOURLY_S = 60.0
_LIST_LIMIT = 200
_HISTORY_LIMIT = 1000
_RANGE_LIMIT = 500
_INCIDENTS_SHOWN = 50


Ends = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True)
class BoardQuery:
    """A window (a range of rows) of the fleet board, and the rows that the browser already has.

    See ``contracts.board``.
    """

    offset: int
    limit: int
    sort: BoardSort = BoardSort.URGENCY
    is_descending: bool = False
    search: str | None = None
    since: str | None = None
    known: Sequence[str] = ()
    has_ended: bool = True

    @property
    def text(self) -> str:
        """The query string."""
        pairs = [
            ("offset", str(self.offset)),
            ("limit", str(self.limit)),
            ("sort", self.sort.value),
            ("is_descending", str(self.is_descending).lower()),
            *([("search", self.search)] if self.search else []),
            *([] if self.has_ended else [("ended", "false")]),
            *([("since", self.since)] if self.since else []),
            *(("known", job) for job in self.known),
        ]
        return urlencode(pairs)


class ApiClient(TargetRequests, WhatIfRequests, SimulationRequests):
    """Typed reads and writes of ``/api/v1``.

    Every method raises ``ApiUnavailableError`` if there is no valid response. If the API refuses the request, the
    method raises ``ApiRefusedError`` with the message of the problem document.
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

    async def status(self) -> StatusOut:
        """Return the state of the service."""
        return await self._get("status", StatusOut)

    async def board(self, window: BoardQuery) -> BoardOut:
        """Return a window of the fleet board."""
        return await self._get(f"board?{window.text}", BoardOut)

    async def job(self, job: str) -> api.JobDetailOut:
        """Return one job with its graph."""
        return await self._get(f"jobs/{_quote(job)}", api.JobDetailOut)

    async def graph(self, job: str) -> api.JobDetailOut:
        """Return one job. The response may be a few seconds old.

        This is enough for callers that need only the graph, because a graph rarely changes.
        """
        return await self._kept_get(f"jobs/{_quote(job)}", api.JobDetailOut)

    async def links(
        self,
        job: str,
        *,
        run: str | None = None,
        vertex: str | None = None,
        subtask: int | None = None,
        checkpoint: int | None = None,
    ) -> LinksOut:
        """Return the links out of Barrierscope for a job, a vertex, a subtask or a checkpoint."""
        query = _query(
            ("run", run),
            ("vertex", vertex),
            ("subtask", None if subtask is None else str(subtask)),
            ("checkpoint", None if checkpoint is None else str(checkpoint)),
        )
        return await self._kept_get(f"jobs/{_quote(job)}/links{query}", LinksOut)

    async def threads(self, job: str, vertex: str, subtask: int, *, has_all: bool) -> ThreadDumpOut:
        """Read the threads of a running subtask, or of the whole process that runs it, from the engine."""
        path = f"{_subtask_path(job, vertex, subtask)}/thread-dump?all={str(has_all).lower()}"
        return _read(await self._request("GET", path, None, _TEST_TIMEOUT_S), ThreadDumpOut)

    async def flame_graph(self, job: str, vertex: str, subtask: int, kind: StackType) -> FlameGraphOut:
        """Read the sampled stacks of a running subtask from the engine."""
        path = f"{_subtask_path(job, vertex, subtask)}/flame-graph?type={kind.value}"
        return _read(await self._request("GET", path, None, _TEST_TIMEOUT_S), FlameGraphOut)

    async def checkpoints(self, job: str) -> api.Page[api.CheckpointOut]:
        """Return the newest checkpoints of a job, from all its runs."""
        return await self._get(f"jobs/{_quote(job)}/checkpoints?limit={_LIST_LIMIT}", api.Page[api.CheckpointOut])

    async def checkpoints_between(
        self, job: str, since: datetime, until: datetime
    ) -> tuple[list[api.CheckpointOut], bool]:
        """Return the newest checkpoints whose trigger is in a range, and whether older ones were left out."""
        query = _query(("limit", str(_RANGE_LIMIT)), ("from", since), ("to", until))
        page = await self._get(f"jobs/{_quote(job)}/checkpoints{query}", api.Page[api.CheckpointOut])
        return page.items, page.next is not None

    async def events(self, job: str) -> api.Page[api.JobEventOut]:
        """Return the events of a job, such as restarts and changes of settings."""
        return await self._get(f"jobs/{_quote(job)}/events?limit={_LIST_LIMIT}", api.Page[api.JobEventOut])

    async def newest_checkpoint_or_none(self, job: str) -> api.CheckpointOut | None:
        """Return the newest checkpoint of a job, or None if it has none."""
        try:
            return await self._kept_get(f"jobs/{_quote(job)}/checkpoints/latest", api.CheckpointOut, _KEPT_OPEN_S)
        except ApiNotFoundError:
            return None

    async def history(self, job: str, since: datetime | None, until: datetime | None) -> HistoryOut:
        """Return the checkpoints in a range, or steps if there are many. Both ends of the range are included.

        A large response is cached for longer, because it costs more and one more checkpoint changes it less.
        """
        # The API excludes the end of the range.
        end = None if until is None else until + timedelta(milliseconds=1)
        query = _query(("from", since), ("to", end), ("max", str(_HISTORY_LIMIT)))
        return await self._kept_get(f"jobs/{_quote(job)}/history{query}", HistoryOut, 0.0)

    async def usual_range(self, job: str) -> UsualOut:
        """Return the usual range of a job's durations. It is cached for a minute, because it changes by the hour."""
        return await self._kept_get(f"jobs/{_quote(job)}/usual-range", UsualOut, _KEPT_HOURLY_S)

    async def annotations(self, job: str, since: datetime | None, until: datetime | None) -> api.Page[AnnotationOut]:
        """Return the newest annotations of a job that overlap a range."""
        query = _query(("limit", str(_LIST_LIMIT)), ("from", since), ("to", until))
        return await self._kept_get(f"jobs/{_quote(job)}/annotations{query}", api.Page[AnnotationOut])

    async def change_points(self, job: str) -> api.Page[ChangePointOut]:
        """Return the instants at which the duration of a job's checkpoints changed."""
        return await self._get(f"jobs/{_quote(job)}/change-points", api.Page[ChangePointOut])

    async def rollups(self, job: str) -> api.Page[RollupHourOut]:
        """Return the hourly rollups of a job for the last 7 days."""
        return await self._get(f"jobs/{_quote(job)}/rollups?limit={_LIST_LIMIT}", api.Page[RollupHourOut])

    async def backpressure(
        self, job: str, since: datetime | None = None, until: datetime | None = None
    ) -> BackpressureOut:
        """Return the latest reading of each vertex and, if a range is given, the readings in it."""
        query = _query(("from", since), ("to", until))
        return await self._get(f"jobs/{_quote(job)}/backpressure{query}", BackpressureOut)

    async def pressure_history(
        self,
        job: str,
        since: datetime | None,
        until: datetime | None,
        vertex: str | None,
        measure: PressureMeasure,
    ) -> PressureHistoryOut:
        """Return the backpressure of a job over time and, if ``vertex`` is given, one measure of its subtasks."""
        query = _query(("from", since), ("to", until), ("vertex", vertex), ("measure", measure.value))
        return await self._get(f"jobs/{_quote(job)}/backpressure/history{query}", PressureHistoryOut)

    async def pressure_around(self, job: str, since: datetime, until: datetime | None) -> PressureHistoryOut:
        """Return the backpressure of a job in a range. The response may be a few seconds old."""
        query = _query(("from", since), ("to", until))
        return await self._kept_get(f"jobs/{_quote(job)}/backpressure/history{query}", PressureHistoryOut)

    async def subtask_matrix(
        self,
        job: str,
        measure: SubtaskMeasure,
        vertex: str | None,
        since: datetime | None,
        until: datetime | None,
        *,
        group: MatrixGroup = MatrixGroup.VERTEX,
    ) -> SubtaskMatrixOut:
        """Return one measure of all subtasks, or of those of one vertex, in the newest ended checkpoints in a range.

        Both ends of the range are included.
        """
        # The API excludes the end of the range.
        end = None if until is None else until + timedelta(milliseconds=1)
        query = _query(
            ("measure", measure.value), ("vertex", vertex), ("group", group.value), ("from", since), ("to", end)
        )
        return await self._get(f"jobs/{_quote(job)}/subtask-matrix{query}", SubtaskMatrixOut)

    async def checkpoint(self, job: str, run: str, checkpoint: int) -> api.CheckpointDetailOut:
        """Return one checkpoint with its subtasks, or with some of them if it has very many."""
        path = _path(job, run, checkpoint)
        detail = await self._kept_get(path, api.CheckpointDetailOut)
        if may_be_completed(detail):
            kept_s = _KEPT_S if detail.status.is_terminal else _KEPT_OPEN_S
            return completed(detail, await self._kept_get(path + "/subtasks", CheckpointSubtasksOut, kept_s))
        return detail

    async def comparison(
        self, job: str, a: str, b: str | None = None, vertex: str | None = None, *, other: str | None = None
    ) -> CheckpointComparisonOut:
        """Return the comparison of two checkpoints, each ``run:checkpoint``. ``other`` is the job of ``b``."""
        query = _query(("a", job), ("b", other), ("a_checkpoint", a), ("b_checkpoint", b), ("vertex", vertex))
        return await self._get(f"compare{query}", CheckpointComparisonOut)

    async def windows(
        self, job: str, before: Ends | None, after: Ends | None, *, other: str | None = None
    ) -> WindowsComparisonOut:
        """Return the comparison of two windows of time. ``other`` is the job of ``before``."""
        (b_from, b_to), (a_from, a_to) = before or (None, None), after or (None, None)
        ends = (("a_from", a_from), ("a_to", a_to), ("b_from", b_from), ("b_to", b_to))
        return await self._get("compare" + _query(("a", job), ("b", other), *ends), WindowsComparisonOut)

    async def progress(self, job: str, run: str, checkpoint: int) -> ProgressOut:
        """Return the progress of one checkpoint."""
        return await self._get(_path(job, run, checkpoint) + "/progress", ProgressOut)

    async def barriers(self, job: str, run: str, checkpoint: int, *, is_over: bool) -> BarriersOut:
        """Return the barrier events of one checkpoint. Unless ``is_over``, they are cached for less than a second."""
        kept_s = _KEPT_S if is_over else _KEPT_OPEN_S
        return await self._kept_get(_path(job, run, checkpoint) + "/barriers", BarriersOut, kept_s)

    async def space_time(
        self, job: str, run: str, checkpoint: int, opened: Sequence[str], *, is_over: bool
    ) -> SpaceTimeOut:
        """Return the space-time diagram of one checkpoint, with ``opened`` vertices shown even if it is folded."""
        query = _query(*(("open", v) for v in opened))
        kept_s = _KEPT_S if is_over else _KEPT_OPEN_S
        return await self._kept_get(_path(job, run, checkpoint) + f"/space-time{query}", SpaceTimeOut, kept_s)

    async def alerts(
        self, *, states: Sequence[str] = (), job: str | None = None, limit: int = _LIST_LIMIT
    ) -> api.Page[wire.AlertOut]:
        """Return alerts, newest first, optionally only those in ``states`` or of one job."""
        query = "".join(f"&state={s}" for s in states) + (f"&job={_quote(job)}" if job is not None else "")
        return await self._get(f"alerts?limit={limit}{query}", api.Page[wire.AlertOut])

    async def open_alerts_or_none(self, job: str) -> list[wire.AlertOut] | None:
        """Return the firing and pending alerts of a job, or None after an error.

        Another part of the page shows the error.
        """
        try:
            return (await self.alerts(states=("firing", "pending"), job=job)).items
        except (ApiRefusedError, ApiUnavailableError):
            return None

    async def alert(self, alert: str) -> wire.AlertDetailOut:
        """Return one alert with its history."""
        return await self._get(f"alerts/{_quote(alert)}", wire.AlertDetailOut)

    async def incidents(self, view: IncidentList) -> api.Page[grouped.IncidentOut]:
        """Return one page of incidents, the most urgent first."""
        states = {"open": ("firing", "pending"), "past": ("resolved",), "never": ("inactive",)}.get(view.state, ())
        pairs = [("limit", str(_INCIDENTS_SHOWN)), *(("state", s) for s in states)]
        values = [(n, getattr(view, n)) for n in ("severity", "group", "search", "label", "cursor")]
        query = urlencode([*pairs, *((n, v) for n, v in values if v)])
        return await self._get(f"incidents?{query}", api.Page[grouped.IncidentOut])

    async def incident(self, incident: str) -> grouped.IncidentDetailOut:
        """Return one incident with its alerts, messages and notes."""
        return await self._get(f"incidents/{_quote(incident)}", grouped.IncidentDetailOut)

    async def alert_rules(self) -> api.Page[wire.AlertRuleOut]:
        """Return every alert rule."""
        return await self._get("alert-rules", api.Page[wire.AlertRuleOut])

    async def runbook(self, rule: str) -> wire.RunbookOut:
        """Return the runbook of an alert rule."""
        return await self._kept_get(f"alert-rules/{_quote(rule)}/runbook", wire.RunbookOut)

    async def cause(self, cause: str) -> CausePageOut:
        """Return the page of a cause."""
        return await self._kept_get(f"causes/{_quote(cause)}", CausePageOut)

    async def silences(self) -> api.Page[wire.SilenceOut]:
        """Return the silences. The one that ends last comes first."""
        return await self._get(f"silences?limit={_LIST_LIMIT}", api.Page[wire.SilenceOut])

    async def receivers(self) -> api.Page[wire.ReceiverOut]:
        """Return the receivers of alerts."""
        return await self._get(f"receivers?limit={_LIST_LIMIT}", api.Page[wire.ReceiverOut])

    async def advice(self, job: str) -> JobAdviceOut:
        """Return the recommendations for a job, or the reasons why there are none."""
        return await self._get(f"jobs/{_quote(job)}/advice", JobAdviceOut)

    async def applied_advice(self, job: str) -> list[CardOut]:
        """Return those of the newest recommendations for a job that were applied. They may be a minute old."""
        path = f"jobs/{_quote(job)}/recommendations?limit=20"
        page = await self._kept_get(path, api.Page[CardOut], _KEPT_HOURLY_S)
        return [card for card in page.items if card.applied_at is not None]

    async def recommendations(self, job: str) -> api.Page[CardOut]:
        """Return the newest recommendations for a job, in any state."""
        return await self._get(f"jobs/{_quote(job)}/recommendations?limit=20", api.Page[CardOut])

    # --- writes ---------------------------------------------------------------------------------------------------

    async def change_alert_rule(self, rule: str, patch: wire.AlertRulePatch, *, version: int) -> wire.AlertRuleOut:
        """Change an alert rule. The API refuses the change if the rule's version is no longer ``version``."""
        etag = {"If-Match": f'"{version}"'}
        return await self._send("PATCH", f"alert-rules/{_quote(rule)}", patch, wire.AlertRuleOut, headers=etag)

    async def add_silence(self, silence: wire.SilenceIn) -> wire.SilenceOut:
        """Add a silence."""
        return await self._send("POST", "silences", silence, wire.SilenceOut)

    async def preview_silence(self, matchers: Sequence[wire.MatcherOut]) -> grouped.SilencePreviewOut:
        """Return what a silence with these matchers would hide now."""
        wanted = grouped.SilencePreviewIn(matchers=list(matchers))
        return await self._send("POST", "silences/preview", wanted, grouped.SilencePreviewOut)

    async def acknowledge_incident(self, incident: str, author: str) -> grouped.IncidentOut:
        """Record that somebody has seen an incident."""
        return await self._act(incident, "acknowledge", grouped.IncidentActIn(author=author))

    async def claim_incident(self, incident: str, author: str, *, claimed_by: str | None) -> grouped.IncidentOut:
        """Record that ``author`` works on an incident. ``claimed_by`` is who worked on it before, if anybody."""
        claim = grouped.ClaimIn(author=author, is_taking_over=claimed_by is not None, claimed_by=claimed_by)
        return await self._act(incident, "claim", claim)

    async def release_incident(self, incident: str, author: str) -> grouped.IncidentOut:
        """Record that nobody works on an incident any longer."""
        return await self._act(incident, "release", grouped.IncidentActIn(author=author))

    async def comment_incident(self, incident: str, author: str, text: str) -> grouped.IncidentNoteOut:
        """Add a comment to an incident."""
        body = grouped.CommentIn(author=author, text=text)
        return await self._send("POST", f"incidents/{_quote(incident)}/comments", body, grouped.IncidentNoteOut)

    async def _act(self, incident: str, verb: str, body: BaseModel) -> grouped.IncidentOut:
        return await self._send("POST", f"incidents/{_quote(incident)}/{verb}", body, grouped.IncidentOut)

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

    async def accept_advice(self, job: str, card: str, author: str | None) -> CardOut:
        """Accept a recommendation."""
        return await self._send("POST", _card_path(job, card, "accept"), DecisionIn(author=author), CardOut)

    async def dismiss_advice(self, job: str, card: str, reason: str, author: str | None) -> CardOut:
        """Dismiss a recommendation."""
        body = DismissIn(reason=reason, author=author)
        return await self._send("POST", _card_path(job, card, "dismiss"), body, CardOut)

    async def roll_back_advice(self, job: str, card: str, author: str | None) -> CardOut:
        """Undo an applied recommendation: change the settings of the job on its target back."""
        body = DecisionIn(author=author)
        return await self._send("POST", _card_path(job, card, "roll-back"), body, CardOut, timeout_s=_TEST_TIMEOUT_S)

    async def try_advice(self, job: str, card: str, *, is_roll_back: bool) -> DryRunOut:
        """Return what applying a recommendation, or rolling it back, would send now. Nothing changes."""
        path = _card_path(job, card, f"dry-run?roll_back={str(is_roll_back).lower()}")
        return _read(await self._request("GET", path, None, _TEST_TIMEOUT_S), DryRunOut)

    async def apply_advice(self, job: str, card: str, *, is_guarded: bool, author: str | None) -> CardOut:
        """Apply a recommendation on its target. If ``is_guarded``, it is rolled back if it made things worse."""
        body = ApplyIn(is_guarded=is_guarded, author=author)
        return await self._send("POST", _card_path(job, card, "apply"), body, CardOut, timeout_s=_TEST_TIMEOUT_S)

    async def take_action(self, job: str, run: str, checkpoint: int, wanted: ActionIn) -> ActionTakenOut:
        """Take an action on a checkpoint in progress."""
        path, body = f"{_path(job, run, checkpoint)}/actions", wanted.model_dump_json().encode()
        return _read(await self._request("POST", path, body, _TEST_TIMEOUT_S), ActionTakenOut)

    # --- requests and cache ---------------------------------------------------------------------------------------

    async def _kept_get(self, path: str, model: type[M], kept_s: float = _KEPT_S) -> M:
        kept = self._kept.get(path)
        if kept is not None and self._monotonic() < kept[0] and isinstance(kept[1], model):
            return kept[1]
        value = await self._get(path, model)
        if isinstance(value, api.CheckpointDetailOut) and not value.status.is_terminal:
            kept_s = min(kept_s, _KEPT_OPEN_S)
        if isinstance(value, HistoryOut):
            kept_s = 30.0 if value.points else len(value.checkpoints) / 100
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


def _subtask_path(job: str, vertex: str, subtask: int) -> str:
    return f"jobs/{_quote(job)}/vertices/{_quote(vertex)}/subtasks/{subtask}"


def _query(*pairs: tuple[str, str | datetime | None]) -> str:
    """Return the query string of the pairs whose value is not None."""
    known = [(name, v.isoformat() if isinstance(v, datetime) else v) for name, v in pairs if v is not None]
    return "?" + urlencode(known) if known else ""


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
    rows = [(f"{e.pointer.lstrip('#/') or 'body'}: {e.detail}", e.allowed) for e in problem.errors]
    fields = "; ".join(words + (f"; allowed: {allowed}" if allowed else "") for words, allowed in rows)
    # Some refusals name their only field in the sentence itself: it must not be said twice.
    is_more = bool(problem.unsaid)
    # A page has room for a line for each field.
    own = [(words.removeprefix("settings."), allowed) for words, allowed in rows]
    lines = [
        f"{words.rstrip('.')}." + (f" Allowed: {allowed.rstrip('.')}." if allowed else "") for words, allowed in own
    ]
    head = capitalised(problem.detail)
    parts = (head, *lines) if is_more else ()
    text = f"{problem.detail} ({fields})" if is_more else problem.detail
    kind = problem.type.rpartition(":")[2]
    if answer.status_code >= 500:
        return ApiUnavailableError(text, kind=kind)
    if answer.status_code == httpx.codes.NOT_FOUND:
        return ApiNotFoundError(text)
    wrong = {e.pointer.removeprefix("settings."): f"{e.detail}; {e.allowed or ''}".rstrip("; ") for e in problem.errors}
    return ApiRefusedError(text, parts, kind=kind, fields=wrong)
