"""Finds the one thing to do first about an alert: the first open recommendation for its job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from backend.alerting.lifecycle import ACTION, Alert
from backend.domain.advice import Topic
from backend.store.advice.cards import open_headlines

_RANKS: Final = {topic: rank for rank, topic in enumerate(Topic)}


async def actions_of(connection: AsyncConnection, job_ids: Iterable[str | None]) -> Mapping[str, str]:
    """Return the headline of each job's open recommendation that comes first on its page.

    A job without an open recommendation is absent.
    """
    wanted = sorted({job_id for job_id in job_ids if job_id is not None})
    if not wanted:
        return {}
    found: dict[str, tuple[int, str]] = {}
    for job_id, topic, headline in await open_headlines(connection, wanted):
        entry = _RANKS[topic], headline
        found[job_id] = min(found.get(job_id, entry), entry)
    return {job_id: headline for job_id, (_, headline) in found.items()}


async def with_actions(connection: AsyncConnection, alerts: Mapping[str, Alert]) -> dict[str, Alert]:
    """Return the alerts. The texts of the open ones name what to do first, if it is known."""
    opened = [a.identity.job_id for a in alerts.values() if a.state.is_open]
    actions = await actions_of(connection, opened)
    return {key: _with_action(alert, actions) for key, alert in alerts.items()}


def _with_action(alert: Alert, actions: Mapping[str, str]) -> Alert:
    action = actions.get(alert.identity.job_id or "") if alert.state.is_open else None
    if action is None:
        return alert
    texts = {**alert.reading.annotations, ACTION: action}
    return replace(alert, reading=replace(alert.reading, annotations=texts))
