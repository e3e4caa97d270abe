"""Builds the texts and links of an alert, which its messages to receivers of every kind contain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote

from backend.alerting.lifecycle import ACTION, Alert, LinkedCheckpoint, summary_of
from backend.domain.advice import with_action

Json = Mapping[str, object]


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
    """Return the texts of the alert, with the permalink, the link to the runbook, and the ids of job and incident.

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
    if alert.identity.job_id is not None:
        texts["job_id"] = alert.identity.job_id
    if alert.incident_id is not None:
        texts |= {"incident_id": alert.incident_id, "incident_url": links.incident(alert.incident_id)}
    return texts


def rfc3339(instant: datetime) -> str:
    """Return an instant as messages contain it, with milliseconds."""
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
