"""The alerts, rules, silences, receivers and advice of the fake API.

Changes of rules are validated, silences hide alerts, and receivers can be tested. One alert fires for the job of run
E. The runtime job has one recommendation, whose state changes when a user accepts, applies or dismisses it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from backend.alerting.rules import RULES, RuleChange, RuleSettings, changed, shipped
from backend.contracts import alerts as wire
from backend.contracts import incidents as grouped
from backend.contracts.advice import CardOut, DismissIn, DryRunOut, JobAdviceOut, LifeEventOut, MeasuredOut
from backend.contracts.api import Page
from backend.domain.advice import AdviceState
from tests.support.api_examples import example

JOB, RUN = "jE", "rE"
ADVISED = "jruntime"


class MadeUpAlerts:
    """The paths ``alerts``, ``alert-rules``, ``silences``, ``receivers`` and ``advice`` of the fake API."""

    def __init__(self, *, now: Callable[[], datetime]) -> None:
        self._now = now
        self._began = now()
        self.rules: dict[str, RuleSettings] = {r.name.value: shipped(r) for r in RULES}
        self.is_firing = True
        self.summary = "payments-settlement: checkpoint 14 expired after 3.0 s"
        self.silences: dict[str, wire.SilenceOut] = {}
        self.incident = example("incident").model_copy(update={"acknowledged_by": None, "acknowledged_at": None})
        self.notes: list[grouped.IncidentNoteOut] = []
        self.receivers: dict[str, wire.ReceiverOut] = {}
        self.refusals: list[str] = []
        """What refuses the change of the card, in its dry run."""
        self.card = example("card").model_copy(
            update={"job_id": ADVISED, "run_id": "rruntime", "can_apply": True, "created_at": self._began}
        )

    def answer(self, method: str, parts: list[str], body: bytes, states: Sequence[str]) -> Any:
        """Return the response at the path ``parts``, or None if this class has no such path."""
        match method, parts:
            case "GET", ["alerts"]:
                is_listed = self.is_firing and (not states or "firing" in states)
                return self._page([self._alert()] if is_listed else [])
            case "GET", ["alerts", _]:
                return self._detail()
            case "GET", ["alert-rules"]:
                return self._page([_rule_out(r) for r in self.rules.values()])
            case "GET", ["alert-rules", _, "runbook"]:
                return example("runbook")
            case "GET", ["causes", _]:
                return example("cause_page")
            case "PATCH", ["alert-rules", rule]:
                return self._change(rule, wire.AlertRulePatch.model_validate_json(body))
            case "GET", ["incidents"]:
                is_listed = self.is_firing and (not states or "firing" in states)
                items = [self._incident()] if is_listed else []
                return Page[grouped.IncidentOut](items=items, as_of=self._now())
            case "GET", ["incidents", _]:
                return self._incident_detail()
            case "POST", ["incidents", _, verb]:
                return self._act(verb, body)
            case "POST", ["silences", "preview"]:
                return example("silence_preview")
            case _, ["silences", *rest]:
                return self._silences(method, rest, body)
            case _, ["receivers", *rest]:
                return self._receivers(method, rest, body)
            case _, ["jobs", job, "advice" | "recommendations" as what, *rest]:
                return self._advice(job, what, rest, body)
        return None

    def _page(self, items: list[Any]) -> Page[Any]:
        return Page[type(items[0]) if items else wire.AlertOut](items=items, as_of=self._now())

    # --- alerts and rules -----------------------------------------------------------------------------------------

    def _alert(self) -> wire.AlertOut:
        linked = example("alert").checkpoints[0].model_copy(update={"run_id": RUN, "checkpoint_id": 14})
        update = {
            "job_id": JOB,
            "labels": example("alert").labels | {"job_name": "payments-settlement"},
            "summary": self.summary,
            "checkpoints": [linked],
            "silenced_by": list(self.silences),
            "began_at": self._began,
            "fired_at": self._began,
            "evaluated_at": self._now(),
        }
        return example("alert").model_copy(update=update)

    def _detail(self) -> wire.AlertDetailOut:
        alert = self._alert()
        update = {name: getattr(alert, name) for name in wire.AlertOut.model_fields} | {"as_of": self._now()}
        episode = wire.EpisodeOut(
            id=alert.id, began_at=self._began, fired_at=self._began, ended_at=None, state="firing"
        )
        return example("alert_detail").model_copy(update=update | {"episodes": [episode]})

    def _incident(self) -> grouped.IncidentOut:
        alert = self._alert()
        update = {
            "id": "i1",
            "job_id": JOB,
            "headline": alert.summary,
            "labels": {n: v for n, v in alert.labels.items() if n not in ("alertname", "severity")},
            "began_at": alert.began_at,
            "fired_at": alert.began_at,
            "silenced_count": len(self.silences),
            "comment_count": sum(n.kind == "comment" for n in self.notes),
        }
        return self.incident.model_copy(update=update)

    def _incident_detail(self) -> grouped.IncidentDetailOut:
        whole, alert = self._incident(), self._alert()
        shown = grouped.IncidentAlertOut(**alert.model_dump(), events=example("alert_detail").events)
        changes = [c.model_copy(update={"at": self._began}) for c in example("incident_detail").changes]
        update = {name: getattr(whole, name) for name in grouped.IncidentOut.model_fields}
        update |= {"alerts": [shown], "notes": self.notes, "changes": changes, "as_of": self._now()}
        return example("incident_detail").model_copy(update=update)

    def _act(self, verb: str, body: bytes) -> Any:
        model = {"claim": grouped.ClaimIn, "comments": grouped.CommentIn}.get(verb, grouped.IncidentActIn)
        given: Any = model.model_validate_json(body)
        kind = {"acknowledge": "acknowledged", "claim": "claimed", "release": "released"}.get(verb, "comment")
        note = grouped.IncidentNoteOut(
            id=len(self.notes), at=self._now(), author=given.author, kind=kind, text=getattr(given, "text", "")
        )
        self.notes.append(note)
        who = {
            "acknowledge": {"acknowledged_by": given.author, "acknowledged_at": self._now()},
            "claim": {"claimed_by": given.author, "claimed_at": self._now()},
            "release": {"claimed_by": None, "claimed_at": None},
        }
        self.incident = self.incident.model_copy(update=who.get(verb, {}))
        return note if verb == "comments" else self._incident()

    def _change(self, name: str, patch: wire.AlertRulePatch) -> wire.AlertRuleOut:
        change = RuleChange(patch.is_enabled, patch.for_s, patch.keep_firing_for_s, patch.thresholds or {})
        self.rules[name] = changed(self.rules[name], change)
        return _rule_out(self.rules[name])

    # --- silences and receivers -----------------------------------------------------------------------------------

    def _silences(self, method: str, rest: list[str], body: bytes) -> Any:
        if method == "GET":
            return self._page(list(self.silences.values()))
        if method == "DELETE":
            del self.silences[rest[0]]
            return True
        given = wire.SilenceIn.model_validate_json(body)
        made = wire.SilenceOut(
            id=f"s{len(self.silences)}", matchers=given.matchers, starts_at=self._now(), ends_at=given.ends_at,
            reason=given.reason, author=given.author, added_at=self._now(), state="active", hidden_count=1,
        )  # fmt: skip
        self.silences[made.id] = made
        return made

    def _receivers(self, method: str, rest: list[str], body: bytes) -> Any:
        match method, rest:
            case "GET", []:
                return self._page(list(self.receivers.values()))
            case "DELETE", [receiver]:
                del self.receivers[receiver]
                return True
            case "POST", [receiver, "test"]:
                is_down = "down" in self.receivers[receiver].url
                result = "cannot connect: Connection refused" if is_down else "HTTP 200"
                return wire.ReceiverTestOut(is_ok=not is_down, result=result, duration_ms=14)
        given = wire.ReceiverIn.model_validate_json(body)
        made = wire.ReceiverOut(
            id=f"w{len(self.receivers)}", **given.model_dump(), origin="api", added_at=self._now(), due_count=0
        )
        self.receivers[made.id] = made
        return made

    # --- advice ---------------------------------------------------------------------------------------------------

    def _advice(self, job: str, what: str, rest: list[str], body: bytes) -> Any:
        cards = [self.card] if job == ADVISED else []
        if what == "advice":
            open_cards = [c for c in cards if c.state is not AdviceState.DISMISSED]
            return JobAdviceOut(
                job=job, job_id=job, as_of=self._now(), considered_count=10, cards=open_cards,
                silences=list(example("job_advice").silences), lints=list(example("job_advice").lints),
                chosen_by=example("job_advice").chosen_by,
            )  # fmt: skip
        match rest:
            case [_, "dismiss"]:
                self._move(AdviceState.DISMISSED, DismissIn.model_validate_json(body).reason, body)
            case [_, "accept"]:
                self._move(AdviceState.ACCEPTED, "accepted; waiting for the engine to report the settings", body)
            case [_, "dry-run"]:
                found: DryRunOut = example("dry_run")
                is_accepted = not self.refusals
                return found.model_copy(update={"is_accepted": is_accepted, "refusals": list(self.refusals)})
            case [_, "roll-back"]:
                self._move(
                    AdviceState.ROLLED_BACK,
                    "rolled back by a person in Barrierscope; the engine reports the earlier settings again",
                    body,
                )
                self.card = self.card.model_copy(update={"can_roll_back": False})
            case [_, "apply"]:
                self._move(AdviceState.ACCEPTED, "sent to the target; waiting for it to report the new settings", body)
            case _:
                return Page[CardOut](items=cards, as_of=self._now())
        return self.card

    def _move(self, state: AdviceState, reason: str, body: bytes = b"") -> None:
        author = json.loads(body or b"{}").get("author")
        event = LifeEventOut(at=self._now(), state=state, reason=reason, author=author)
        update = {"state": state, "state_reason": reason, "can_apply": False, "history": (*self.card.history, event)}
        self.card = self.card.model_copy(update=update)

    def verify(self) -> None:
        """Pretend that five checkpoints completed under the recommended settings."""
        rows = tuple(
            MeasuredOut(
                metric=e.metric, unit=e.unit, predicted=e.predicted, measured=e.predicted.value + 3,
                is_inside=True, checkpoint_count=5,
                values=tuple(e.predicted.value * share for share in (0.95, 0.98, 1.01, 1.02, 1.3)),
            )
            for e in self.card.recommendation.expected
        )  # fmt: skip
        self._move(AdviceState.VERIFIED, "2 of 2 predictions held over 5 checkpoints")
        self.card = self.card.model_copy(
            update={"measured": rows, "measured_ids": (19, 20, 21, 22, 23), "can_roll_back": True}
        )


def _rule_out(settings: RuleSettings) -> wire.AlertRuleOut:
    rule = settings.rule
    return wire.AlertRuleOut(
        name=rule.name, meaning=rule.meaning, severity=rule.severity.value, subject=rule.subject.value,
        is_enabled=settings.is_enabled, for_s=settings.for_s, keep_firing_for_s=settings.keep_firing_for_s,
        thresholds=[
            wire.ThresholdOut(
                name=t.name, value=settings[t.name], default=t.default, least=t.least, most=t.most,
                is_whole=t.is_whole, meaning=t.meaning,
            )
            for t in rule.thresholds
        ],
        version=settings.version, runbook_link="", open_count=0,
    )  # fmt: skip
