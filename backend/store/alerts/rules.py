"""Reads and writes the alert rules that were changed from their defaults, one row each.

The version of a row prevents lost updates.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import RowMapping, select
from sqlalchemy.dialects.postgresql import insert as pg_insert
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.alerting.rules import RULES, Rule, RuleSettings, shipped
from backend.domain.errors import ConflictError
from backend.store.postgres.statements import beside_key, replaced
from backend.store.schema import alert_tables
from backend.store.schema.rows import row_of, value_of


async def rules_in_force(connection: AsyncConnection) -> list[RuleSettings]:
    """Return every alert rule with the settings that apply now, in the order of ``RULES``."""
    rows = (await connection.execute(select(alert_tables.alert_rules))).mappings()
    stored = {row["name"]: row for row in rows}
    return [_settings(rule, stored[rule.name]) if rule.name in stored else shipped(rule) for rule in RULES]


_NEW = pg_insert(alert_tables.alert_rules)
_SAVE = _NEW.on_conflict_do_update(
    index_elements=alert_tables.alert_rules.primary_key,
    set_=replaced(_NEW, beside_key(alert_tables.alert_rules)),
    where=alert_tables.alert_rules.c.version == _NEW.excluded.version - 1,
).returning(alert_tables.alert_rules.c.name)


async def save_rule(connection: AsyncConnection, settings: RuleSettings, *, at: datetime) -> None:
    """Store a rule whose settings were changed. Its stored version must be ``settings.version - 1``.

    Raises:
        ConflictError: the stored version is another one, because the rule was changed meanwhile.
    """
    row = row_of(
        alert_tables.alert_rules,
        settings,
        name=settings.rule.name.value,
        thresholds=dict(settings.thresholds),
        changed_at=at,
    )
    if (await connection.execute(_SAVE, row)).first() is None:
        raise version_conflict(settings.rule)


def version_conflict(rule: Rule) -> ConflictError:
    """Return the error for a change that is based on an outdated version of a rule."""
    return ConflictError(
        f"{rule.name} was changed meanwhile; read it again and repeat the change", kind="version-conflict"
    )


def _settings(rule: Rule, row: RowMapping) -> RuleSettings:
    # If the code added a threshold after the rule was stored, the threshold gets its default. If the code removed a
    # threshold, its stored value is ignored.
    stored = row["thresholds"]
    thresholds = {t.name: float(stored.get(t.name, t.default)) for t in rule.thresholds}
    return value_of(RuleSettings, row, rule=rule, thresholds=thresholds)
