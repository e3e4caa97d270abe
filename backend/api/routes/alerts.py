"""The routes for alerts, alert rules, silences and receivers."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Header, Path, Query, Request, Response

from backend.alerting.lifecycle import AlertState
from backend.alerting.rules import RuleName, Severity
from backend.api import examples
from backend.api.deps import LIMIT, Cursor, Given, Limit
from backend.contracts import alerts as wire
from backend.contracts import api
from backend.domain.errors import FieldProblem, InvalidInputError
from backend.services.alerts.episodes import WantedAlerts

router = APIRouter(tags=["alerts"])

_TEXT = r"^[^\x00]*$"
AlertId = Annotated[str, Path(max_length=100, pattern=_TEXT, description="Id of an alert.")]
RuleId = Annotated[
    str, Path(max_length=100, pattern=_TEXT, description="Name of a rule.", examples=["CheckpointExpired"])
]
SilenceId = Annotated[str, Path(max_length=100, pattern=_TEXT, description="Id of a silence.")]
ReceiverId = Annotated[str, Path(max_length=100, pattern=_TEXT, description="Id of a receiver.")]
States = Annotated[
    list[AlertState] | None, Query(description="Only alerts in these states; may be repeated.", max_length=4)
]
JobFilter = Annotated[str | None, Query(max_length=100, pattern=_TEXT, description="Only alerts on this job.")]
IfMatch = Annotated[
    str | None,
    Header(max_length=100, description="The version that was read, in quotes: 409 if the version is now another."),
]
RulePatch = Annotated[wire.AlertRulePatch, Body(openapi_examples={"threshold": {"value": examples.read("rule_patch")}})]
NewSilence = Annotated[wire.SilenceIn, Body(openapi_examples={"one job": {"value": examples.read("silence_in")}})]
NewReceiver = Annotated[
    wire.ReceiverIn, Body(openapi_examples={"alertmanager": {"value": examples.read("receiver_in")}})
]


@router.get("/alerts", responses=examples.page_of("alert"))
async def list_alerts(
    services: Given,
    state: States = None,
    rule: RuleName | None = None,
    job: JobFilter = None,
    severity: Severity | None = None,
    cursor: Cursor = None,
    limit: Limit = LIMIT,
) -> api.Page[wire.AlertOut]:
    """List alerts, newest first. Without ``state``: pending, firing and resolved alerts."""
    wanted = WantedAlerts(tuple(state or ()), rule, job, severity)
    return await services.alerts.page(wanted, cursor=cursor, limit=limit)


@router.get("/alerts/{alert}", responses=examples.of("alert_detail"))
async def read_alert(alert: AlertId, services: Given) -> wire.AlertDetailOut:
    """Return one alert with its changes of state, its checkpoints, its deliveries and its runbook."""
    return await services.alerts.detail(alert)


@router.get("/alert-rules", responses=examples.page_of("rule"))
async def list_alert_rules(services: Given) -> api.Page[wire.AlertRuleOut]:
    """List every alert rule with its current thresholds."""
    return await services.alert_control.rules()


@router.get("/alert-rules/{rule}", responses=examples.of("rule"))
async def read_alert_rule(rule: RuleId, services: Given, response: Response) -> wire.AlertRuleOut:
    """Return one alert rule. Its version is the ``ETag``."""
    found = await services.alert_control.rule(rule)
    response.headers["ETag"] = f'"{found.version}"'
    return found


@router.patch("/alert-rules/{rule}", responses=examples.of("rule"))
async def change_alert_rule(
    rule: RuleId, patch: RulePatch, services: Given, response: Response, if_match: IfMatch = None
) -> wire.AlertRuleOut:
    """Change the thresholds and times of a rule, or switch it off or on. Absent fields stay unchanged."""
    change = await services.alert_control.change_rule(rule, patch, version=_version(if_match))
    response.headers["ETag"] = f'"{change.version}"'
    return change


@router.get("/alert-rules/{rule}/runbook", responses=examples.of("runbook"))
async def read_runbook(rule: RuleId, services: Given) -> wire.RunbookOut:
    """Return the runbook of a rule: what to do if the alert fires."""
    return services.alert_control.runbook(rule)


@router.get("/silences", responses=examples.page_of("silence"))
async def list_silences(services: Given, cursor: Cursor = None, limit: Limit = LIMIT) -> api.Page[wire.SilenceOut]:
    """List silences, including ended ones, with the number of alerts that each hides now.

    The silence that ends last comes first.
    """
    return await services.alert_control.silences(cursor=cursor, limit=limit)


@router.post("/silences", status_code=201, responses=examples.of("silence", status=201))
async def add_silence(wanted: NewSilence, services: Given) -> wire.SilenceOut:
    """Add a silence: until its end, alerts that fit every matcher are not sent to receivers. They are still shown."""
    return await services.alert_control.add_silence(wanted)


@router.delete("/silences/{silence}", status_code=204)
async def end_silence(silence: SilenceId, services: Given) -> None:
    """End a silence now. Alerts that it hid and that still fire are sent to the receivers."""
    await services.alert_control.end_silence(silence)


@router.get("/receivers", responses=examples.page_of("receiver"))
async def list_receivers(services: Given, cursor: Cursor = None, limit: Limit = LIMIT) -> api.Page[wire.ReceiverOut]:
    """List the receivers of alerts, oldest first."""
    return await services.receivers.page(cursor=cursor, limit=limit)


@router.post("/receivers", status_code=201, responses=examples.of("receiver", status=201))
async def add_receiver(wanted: NewReceiver, services: Given, request: Request, response: Response) -> wire.ReceiverOut:
    """Add a receiver. It also gets alerts that already fire. 409 if a receiver with this name exists."""
    added = await services.receivers.add(wanted)
    response.headers["Location"] = f"{request.url.path.rstrip('/')}/{added.id}"
    return added


@router.delete("/receivers/{receiver}", status_code=204)
async def remove_receiver(receiver: ReceiverId, services: Given) -> None:
    """Remove a receiver. Its deliveries stay in the log."""
    await services.receivers.remove(receiver)


@router.post("/receivers/{receiver}/test", responses=examples.of("receiver_test"))
async def try_receiver(receiver: ReceiverId, services: Given) -> wire.ReceiverTestOut:
    """Send one test alert that is already resolved. ``result`` contains the receiver's response."""
    return await services.receivers.test(receiver)


def _version(if_match: str | None) -> int | None:
    if if_match is None or if_match.strip() == "*":
        return None
    text = if_match.strip().removeprefix("W/").strip('"')
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        problem = FieldProblem(
            "if-match", "is not a version of a rule", 'the ETag of an earlier answer, for example "3"'
        )
        raise InvalidInputError([problem], what="header")
    return int(text)
