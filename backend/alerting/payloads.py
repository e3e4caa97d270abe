"""Builds message bodies: for Alertmanager's ``POST /api/v2/alerts``, and for the generic webhook, version 4.

Sources: Alertmanager's ``api/v2/openapi.yaml`` (labels identify an alert, and an ``endsAt`` in the past resolves it),
and the webhook payload in Alertmanager's documentation. A firing alert has an ``endsAt`` in the future, as in messages
from Prometheus. Alertmanager resolves the alert at that time unless it is sent again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

from backend.alerting.lifecycle import ACTION, Alert, LinkedCheckpoint, summary_of
from backend.domain.advice import with_action

Json = Mapping[str, object]
_NEVER = "0001-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Links:
    """Builds the addresses of pages under the public base URL, which has no slash at its end."""

    base_url: str

    def alert(self, alert_id: str) -> str:
        """Return the address of the page for one alert."""
        return f"{self.base_url}/ui/alerts/{quote(alert_id, safe='')}"

    def incident(self, incident_id: str) -> str:
        """Return the address of the page for one incident."""
        return f"{self.base_url}/ui/incidents/{quote(incident_id, safe='')}"

    def job(self, job_id: str) -> str:
        """Return the address of the page for one job."""
        return f"{self.base_url}/ui/jobs/{quote(job_id, safe='')}"

    def checkpoint(self, job_id: str, linked: LinkedCheckpoint) -> str:
        """Return the permanent address of the page for one checkpoint."""
        return f"{self.job(job_id)}/runs/{quote(linked.run_id, safe='')}/checkpoints/{linked.checkpoint_id}"

    def targets(self) -> str:
        """Return the address of the page that lists the targets."""
        return f"{self.base_url}/ui/targets"

    def runbook(self, rule: str) -> str:
        """Return the address of the page with a rule's runbook."""
        return f"{self.base_url}/ui/runbooks/{quote(rule, safe='')}"


def permalink(alert: Alert, links: Links) -> str:
    """Return the address of the page to open for an alert.

    If the alert is about a job, it is the page of the last linked checkpoint, or of the job if no checkpoint is
    linked. If the alert is about a target, it is the list of targets. Otherwise it is the page of the alert.
    """
    job_id = alert.identity.job_id
    if job_id is None:
        return links.targets() if alert.identity.target_id is not None else links.alert(alert.id)
    return links.checkpoint(job_id, alert.checkpoints[-1]) if alert.checkpoints else links.job(job_id)


def texts_of(alert: Alert, links: Links) -> dict[str, str]:
    """Return the texts of the alert, with the permalink, the link to the runbook, and the incident's id and address.

    The description is one sentence of each kind: what is wrong, where and why, what a failure would replay, and what to
    do first.
    """
    where = permalink(alert, links)
    texts = dict(alert.reading.annotations)
    if "summary" in texts:
        texts["summary"] = summary_of(alert)
    if "description" in texts:
        texts["description"] = f"{with_action(texts['description'], texts.get(ACTION))} {where}"
    texts |= {"link": where, "runbook_url": links.runbook(alert.identity.rule)}
    if alert.incident_id is not None:
        texts |= {"incident_id": alert.incident_id, "incident_url": links.incident(alert.incident_id)}
    return texts


def for_alertmanager(alert: Alert, links: Links, *, ends_at: datetime) -> Json:
    """Return one entry of the array for Alertmanager.

    ``ends_at`` is the time at which Alertmanager resolves the alert unless the alert is sent again.
    """
    return {
        "labels": dict(alert.identity.labels),
        "annotations": texts_of(alert, links),
        "startsAt": _rfc3339(alert.fired_at or alert.began_at),
        "endsAt": _rfc3339(alert.ended_at or ends_at),
        "generatorURL": links.alert(alert.id),
    }


def for_webhook(alert: Alert, links: Links, *, is_firing: bool, receiver: str) -> Json:
    """Return the body for a webhook, which contains this one alert."""
    texts, labels = texts_of(alert, links), dict(alert.identity.labels)
    status = "firing" if is_firing else "resolved"
    entry = {
        "status": status,
        "labels": labels,
        "annotations": texts,
        "startsAt": _rfc3339(alert.fired_at or alert.began_at),
        "endsAt": _NEVER if is_firing or alert.ended_at is None else _rfc3339(alert.ended_at),
        "generatorURL": links.alert(alert.id),
        "fingerprint": alert.identity.fingerprint,
    }
    return {
        "version": "4",
        "groupKey": f'{{}}:{{alertname="{alert.identity.rule}", fingerprint="{alert.identity.fingerprint}"}}',
        "truncatedAlerts": 0,
        "status": status,
        "receiver": receiver,
        "groupLabels": {"alertname": alert.identity.rule},
        "commonLabels": labels,
        "commonAnnotations": texts,
        "externalURL": links.base_url,
        "alerts": [entry],
    }


def valid_until(now: datetime, resend_s: float) -> datetime:
    """Return the time at which Alertmanager resolves a firing alert unless the alert is sent again.

    As in Prometheus, this is ``now`` plus four times the pause between two sends.
    """
    return now + timedelta(seconds=4 * resend_s)


def _rfc3339(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
