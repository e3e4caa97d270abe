"""HTTP routes for incidents, and for the preview of a silence."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Path, Query

from backend.alerting.lifecycle import AlertState
from backend.alerting.rules import Severity
from backend.api import examples
from backend.api.deps import LIMIT, Cursor, Given, Limit
from backend.contracts import api
from backend.contracts import incidents as wire
from backend.domain.errors import FieldProblem, InvalidInputError
from backend.store.alerts.incidents import Grouping, IncidentFilter

router = APIRouter(tags=["incidents"])

_TEXT = r"^[^\x00]*$"
_SHOWN = (AlertState.PENDING, AlertState.FIRING, AlertState.RESOLVED)
# The watchdog always fires, so it is listed only on request.
_ALARMING = (Severity.CRITICAL, Severity.WARNING)
IncidentId = Annotated[str, Path(max_length=100, pattern=_TEXT, description="Id of an incident.")]
States = Annotated[
    list[AlertState] | None, Query(description="Only incidents in these states; may be repeated.", max_length=4)
]
Severities = Annotated[
    list[Severity] | None, Query(description="Only incidents of these severities; may be repeated.", max_length=3)
]
Search = Annotated[str | None, Query(max_length=200, pattern=_TEXT, description="Part of the name of a job or target.")]
JobFilter = Annotated[str | None, Query(max_length=100, pattern=_TEXT, description="Only incidents of this job.")]
TargetFilter = Annotated[str | None, Query(max_length=100, pattern=_TEXT, description="Only incidents of this target.")]
LabelFilter = Annotated[
    list[Annotated[str, Query(max_length=1200, pattern=_TEXT)]] | None,
    Query(description="Only incidents with this label, as `name=value`; may be repeated.", max_length=10),
]
GroupBy = Annotated[Grouping | None, Query(description="Sort the list by this first.")]
Preview = Annotated[
    wire.SilencePreviewIn, Body(openapi_examples={"one job": {"value": examples.read("silence_preview_in")}})
]
Act = Annotated[wire.IncidentActIn, Body(openapi_examples={"by ann": {"value": examples.read("incident_act")}})]
Claim = Annotated[wire.ClaimIn, Body(openapi_examples={"by ann": {"value": examples.read("incident_act")}})]
Comment = Annotated[wire.CommentIn, Body(openapi_examples={"by ann": {"value": examples.read("comment_in")}})]


@router.get("/incidents", responses=examples.page_of("incident"))
async def list_incidents(
    services: Given,
    state: States = None,
    severity: Severities = None,
    search: Search = None,
    job: JobFilter = None,
    target: TargetFilter = None,
    label: LabelFilter = None,
    group: GroupBy = None,
    cursor: Cursor = None,
    limit: Limit = LIMIT,
) -> api.Page[wire.IncidentOut]:
    """List incidents, open ones first: critical and firing, firing, pending, over; each newest first.

    Without ``state``: pending, firing and resolved incidents. Without ``severity``: all but the watchdog.
    """
    wanted = IncidentFilter(
        tuple(state or _SHOWN),
        tuple(severity or _ALARMING),
        search,
        job,
        target,
        tuple(_label(given) for given in label or ()),
    )
    return await services.incidents.page(wanted, grouping=group, cursor=cursor, limit=limit)


@router.get("/incidents/{incident}", responses=examples.of("incident_detail"))
async def read_incident(incident: IncidentId, services: Given) -> wire.IncidentDetailOut:
    """Return one incident with its alerts, messages, notes, and the changes of the job around its beginning."""
    return await services.incidents.detail(incident)


@router.post("/incidents/{incident}/acknowledge", responses=examples.of("incident"))
async def acknowledge_incident(incident: IncidentId, act: Act, services: Given) -> wire.IncidentOut:
    """Record that somebody has seen the incident. 409 if it is over. Messages are sent as before."""
    return await services.incidents.acknowledge(incident, act.author)


@router.post("/incidents/{incident}/claim", responses=examples.of("incident"))
async def claim_incident(incident: IncidentId, claim: Claim, services: Given) -> wire.IncidentOut:
    """Record that somebody works on the incident. 409 if it is over, or if somebody else has it."""
    return await services.incidents.claim(
        incident, claim.author, is_taking_over=claim.is_taking_over, claimed_by=claim.claimed_by
    )


@router.post("/incidents/{incident}/release", responses=examples.of("incident"))
async def release_incident(incident: IncidentId, act: Act, services: Given) -> wire.IncidentOut:
    """Record that nobody works on the incident any longer."""
    return await services.incidents.release(incident, act.author)


@router.post("/incidents/{incident}/comments", status_code=201, responses=examples.of("incident_note", status=201))
async def comment_on_incident(incident: IncidentId, comment: Comment, services: Given) -> wire.IncidentNoteOut:
    """Add a comment of up to 4000 characters.

    An incident that is over accepts comments too. 409 if it has 200 comments already.
    """
    return await services.incidents.comment(incident, comment.author, comment.text)


@router.post("/silences/preview", responses=examples.of("silence_preview"))
async def preview_silence(wanted: Preview, services: Given) -> wire.SilencePreviewOut:
    """Return what a silence with these matchers would hide now. Nothing is stored."""
    return await services.alert_control.preview(wanted)


def _label(given: str) -> tuple[str, str]:
    name, sign, value = given.partition("=")
    if not sign or not name:
        raise InvalidInputError([FieldProblem("label", f"{given[:80]!r} is not a label", "name=value")], what="query")
    return name, value
