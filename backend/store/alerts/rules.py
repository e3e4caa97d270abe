"""The rules as changed: a row where a rule differs from what the code ships; its version guards against lost edits."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.alerting.rules import RULES, Rule, RuleSettings, shipped
from backend.domain.errors import ConflictError
from backend.store.schema.documents import dump


async def rules_in_force(connection: AsyncConnection) -> list[RuleSettings]:
    """Every rule with its values in force, in the order of the code."""
    query = text("SELECT name, is_enabled, for_s, keep_firing_for_s, thresholds, version FROM alert_rules")
    stored = {row[0]: row[1:] for row in (await connection.execute(query)).all()}
    return [_settings(rule, *stored[rule.name]) if rule.name in stored else shipped(rule) for rule in RULES]


async def save_rule(connection: AsyncConnection, settings: RuleSettings, *, at: datetime) -> None:
    """Write a rule that was changed from version ``settings.version - 1``.

    Raises:
        ConflictError: somebody changed it meanwhile.

    """
    statement = text(
        "INSERT INTO alert_rules AS r (name, is_enabled, for_s, keep_firing_for_s, thresholds, version, changed_at)"
        " VALUES (:name, :is_enabled, :for_s, :keep, CAST(:thresholds AS jsonb), :version, :at)"
        " ON CONFLICT (name) DO UPDATE SET is_enabled = excluded.is_enabled, for_s = excluded.for_s,"
        " keep_firing_for_s = excluded.keep_firing_for_s, thresholds = excluded.thresholds,"
        " version = excluded.version, changed_at = excluded.changed_at"
        " WHERE r.version = excluded.version - 1 RETURNING 1"
    )
    values = {
        "name": settings.rule.name.value,
        "is_enabled": settings.is_enabled,
        "for_s": settings.for_s,
        "keep": settings.keep_firing_for_s,
        "thresholds": dump(dict(settings.thresholds)),
        "version": settings.version,
        "at": at,
    }
    if (await connection.execute(statement, values)).first() is None:
        raise version_conflict(settings.rule)


def version_conflict(rule: Rule) -> ConflictError:
    """What is said where an edit is based on an older version."""
    return ConflictError(
        f"{rule.name} was changed meanwhile; read it again and repeat the change", kind="version-conflict"
    )


def _settings(
    rule: Rule, is_enabled: bool, for_s: float, keep_s: float, thresholds: Mapping[str, float], version: int
) -> RuleSettings:
    # A threshold that a newer version of the code added has its default; one that it dropped is forgotten.
    values = {t.name: float(thresholds.get(t.name, t.default)) for t in rule.thresholds}
    return RuleSettings(rule, is_enabled, for_s, keep_s, values, version)
