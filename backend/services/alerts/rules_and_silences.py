"""Lists and changes alert rules and silences, and returns the rules' runbooks."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal, cast

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from backend.alerting.labels import Matcher, check_matchers
from backend.alerting.lifecycle import Alert
from backend.alerting.rules import Rule, RuleChange, RuleSettings, changed, rule_of
from backend.contracts import alerts as wire
from backend.contracts import api, incidents
from backend.domain.clock import Clock
from backend.domain.errors import FieldProblem, InvalidInputError, UnknownEntityError
from backend.services.alerts.incidents import hidden_by
from backend.services.paging import decode_cursor, page_of
from backend.services.presenting import API_ROOT
from backend.store.alerts.episodes import open_alerts
from backend.store.alerts.rules import rules_in_force, save_rule, version_conflict
from backend.store.alerts.silences import Silence, add_silence, end_silence, list_silences
from backend.store.postgres.connections import reading, writing

_SILENCE_MAX = timedelta(days=366)


class AlertControlService:
    """Handles requests about rules, silences and runbooks."""

    def __init__(self, engine: AsyncEngine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    # --- rules ----------------------------------------------------------------------------------------------------

    async def rules(self) -> api.Page[wire.AlertRuleOut]:
        """Return all rules on one page, because there are only a few."""
        async with reading(self._engine) as connection:
            items = [_rule_out(s, opened) for s, opened in await self._with_open(connection)]
        return api.Page[wire.AlertRuleOut](items=items, as_of=self._clock.now())

    async def rule(self, name: str) -> wire.AlertRuleOut:
        """Return one rule.

        Raises:
            UnknownEntityError: there is no such rule.
        """
        rule = _known(name)
        async with reading(self._engine) as connection:
            return await self._one(connection, rule)

    async def change_rule(self, name: str, patch: wire.AlertRulePatch, *, version: int | None) -> wire.AlertRuleOut:
        """Change a rule. If ``version`` is set, change it only if the rule still has this version.

        Raises:
            UnknownEntityError: there is no such rule.
            InvalidInputError: a value is out of bounds.
            ConflictError: the rule was changed meanwhile.
        """
        rule = _known(name)
        change = RuleChange(patch.is_enabled, patch.for_s, patch.keep_firing_for_s, patch.thresholds or {})
        async with writing(self._engine) as connection:
            (before,) = [s for s in await rules_in_force(connection) if s.rule is rule]
            if version is not None and version != before.version:
                raise version_conflict(rule)
            await save_rule(connection, changed(before, change), at=self._clock.now())
            return await self._one(connection, rule)

    async def _one(self, connection: AsyncConnection, rule: Rule) -> wire.AlertRuleOut:
        return next(_rule_out(s, opened) for s, opened in await self._with_open(connection) if s.rule is rule)

    async def _with_open(self, connection: AsyncConnection) -> list[tuple[RuleSettings, int]]:
        opened = [a.identity.rule for a in await open_alerts(connection)]
        return [(s, opened.count(s.rule.name)) for s in await rules_in_force(connection)]

    def runbook(self, name: str) -> wire.RunbookOut:
        """Return the rule's runbook, which says what to do when the rule fires.

        Raises:
            UnknownEntityError: there is no such rule.
        """
        rule = _known(name)
        return wire.RunbookOut(rule=rule.name, markdown=runbook_path(rule).read_text(encoding="utf-8"))

    # --- silences -------------------------------------------------------------------------------------------------

    async def silences(self, *, cursor: str | None, limit: int) -> api.Page[wire.SilenceOut]:
        """Return one page of silences, each with the number of alerts that it hides now.

        The silence that ends last comes first.

        Raises:
            InvalidInputError: the cursor does not belong to this list.
        """
        before = cast("tuple[datetime, str] | None", decode_cursor(cursor, (datetime, str)))
        now = self._clock.now()
        async with reading(self._engine) as connection:
            listed = await list_silences(connection, before=before, limit=limit + 1)
            opened = await open_alerts(connection)
        items, following = page_of(listed, limit, lambda s: (s.ends_at, s.id))
        shown = [_silence_out(s, opened, now) for s in items]
        return api.Page[wire.SilenceOut](items=shown, next=following, as_of=now)

    async def add_silence(self, wanted: wire.SilenceIn) -> wire.SilenceOut:
        """Add a silence. Alerts that match all its matchers are not delivered while it is active.

        Raises:
            InvalidInputError: the matchers or the times are invalid.
        """
        now = self._clock.now()
        matchers = tuple(Matcher(m.name, m.value, m.is_equal) for m in wanted.matchers)
        check_matchers(matchers)
        starts_at = wanted.starts_at or now
        _check_times(starts_at, wanted.ends_at, now)
        silence = Silence(
            id="s" + secrets.token_hex(8),
            matchers=matchers,
            starts_at=starts_at,
            ends_at=wanted.ends_at,
            reason=wanted.reason,
            author=wanted.author,
            added_at=now,
        )
        async with writing(self._engine) as connection:
            await add_silence(connection, silence)
            return _silence_out(silence, await open_alerts(connection), now)

    async def preview(self, wanted: incidents.SilencePreviewIn) -> incidents.SilencePreviewOut:
        """Return what a silence with these matchers would hide now.

        Raises:
            InvalidInputError: the matchers are invalid.
        """
        now = self._clock.now()
        matchers = tuple(Matcher(m.name, m.value, m.is_equal) for m in wanted.matchers)
        check_matchers(matchers)
        silence = Silence("", matchers, now, now + _SILENCE_MAX, "", "", now)
        async with reading(self._engine) as connection:
            return hidden_by(silence, await open_alerts(connection), now)

    async def end_silence(self, silence_id: str) -> None:
        """End a silence now. Alerts that it hid and that are still firing are then delivered.

        Raises:
            UnknownEntityError: there is no silence with this id.
        """
        async with writing(self._engine) as connection:
            await end_silence(connection, silence_id, at=self._clock.now())


def runbook_path(rule: Rule) -> Path:
    """Return the path of the rule's runbook.

    In a checkout, the runbook is in ``docs`` next to the ``backend`` folder. In an installed wheel, it is in
    ``backend/_runbooks``.
    """
    backend = Path(__file__).resolve().parents[2]
    beside = backend.parent / rule.runbook
    return beside if beside.is_file() else backend / "_runbooks" / f"{rule.name}.md"


def _known(name: str) -> Rule:
    rule = rule_of(name)
    if rule is None:
        raise UnknownEntityError(kind="alert-rule", id=name)
    return rule


def _check_times(starts_at: datetime, ends_at: datetime, now: datetime) -> None:
    problem = None
    if ends_at <= max(starts_at, now):
        allowed = "an instant in the future, after starts_at"
        problem = FieldProblem("ends_at", "is in the past or not after starts_at", allowed)
    elif ends_at - min(starts_at, now) > _SILENCE_MAX:
        problem = FieldProblem("ends_at", "is too far in the future", f"within {_SILENCE_MAX.days} days")
    if problem is not None:
        raise InvalidInputError([problem], what="silence")


def _silence_out(silence: Silence, opened: Sequence[Alert], now: datetime) -> wire.SilenceOut:
    state: Literal["scheduled", "active", "expired"] = "active"
    if now < silence.starts_at:
        state = "scheduled"
    elif now >= silence.ends_at:
        state = "expired"
    hidden_count = sum(silence.hides(a.identity.matched, now) for a in opened)
    return wire.SilenceOut.of(silence, state=state, hidden_count=hidden_count)


def _rule_out(settings: RuleSettings, open_count: int) -> wire.AlertRuleOut:
    rule = settings.rule
    return wire.AlertRuleOut.of(
        settings,
        rule,
        thresholds=[wire.ThresholdOut.of(t, value=settings[t.name]) for t in rule.thresholds],
        runbook_link=f"{API_ROOT}/alert-rules/{rule.name}/runbook",
        open_count=open_count,
    )
