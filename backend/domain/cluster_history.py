"""What the resources of flink-kubernetes-operator say of a job's history: upgrades, rollbacks and snapshots.

An upgrade is seen by comparing two states of an object. A state is *settled* once the operator has deployed its
specification, so an upgrade under way is none yet. Of settings and arguments only digests are kept, because they may
hold secrets. Source:
https://nightlies.apache.org/flink/flink-kubernetes-operator-docs-main/docs/custom-resource/reference/
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from backend.domain.kubernetes_cluster import at_path, flat, instant_of, key_of, run_id_of, text_of
from backend.domain.pod_ends import PodEnd
from backend.domain.text import clean

_CREDENTIALS: Final = re.compile(r"(?<=://)[^/@\s]*@")
_LAST_STATE: Final = "KUBERNETES_OPERATOR_LAST_STATE"
"""What the operator writes as the path of a savepoint if Flink itself finds its newest checkpoint."""
_SHOWN_MAX: Final = 120
_NAMED_MAX: Final = 5
_SPEC_MAX: Final = 1_000_000
_SHORT: Final = 3
"""Bytes of a stored digest. It shows a change, and is too short to find a password by trying."""
_PLAIN: Final[Mapping[str, tuple[str, ...]]] = {
    "image": ("image",),
    "Flink version": ("flinkVersion",),
    "parallelism": ("job", "parallelism"),
    "state": ("job", "state"),
}
_DIGESTED: Final[Mapping[str, tuple[str, ...]]] = {
    "the jar": ("job", "jarURI"),
    "the arguments": ("job", "args"),
    "the entry class": ("job", "entryClass"),
    "the pod template": ("podTemplate",),
    "the JobManager": ("jobManager",),
    "the TaskManagers": ("taskManager",),
    "the restart nonce": ("restartNonce",),
    "the job's restart nonce": ("job", "restartNonce"),
    "the redeployment nonce": ("job", "savepointRedeployNonce"),
    "the initial savepoint": ("job", "initialSavepointPath"),
    "allowNonRestoredState": ("job", "allowNonRestoredState"),
    "the logging": ("logConfiguration",),
    "the service account": ("serviceAccount",),
}
_REST: Final = "the rest of the specification"
_NO_CHANGE: Final = (
    ("flinkConfiguration",),
    ("job", "upgradeMode"),
    ("job", "savepointTriggerNonce"),
    ("job", "checkpointTriggerNonce"),
    ("job", "autoscalerResetNonce"),
)
"""What is no part of the rest: the settings, which are compared one by one, what the operator writes itself, and nonces
that make the operator do something without a deployment."""


@dataclass(frozen=True, slots=True)
class ObjectState:
    """The settled state of one object. ``subject`` names the object, with its unique id.

    ``shown`` are the parts of the specification whose values may be told, ``hidden`` the digests of the others, and
    ``settings`` the digests of Flink's settings by their keys. ``at`` is when the operator reached the state.
    ``upgrade_mode`` is the mode that the operator used for it. It need not be the one that was asked for.
    """

    subject: str
    at: datetime
    is_rolled_back: bool = False
    is_stable: bool = False
    job_id: str | None = None
    restored_from: str | None = None
    upgrade_mode: str | None = None
    shown: Mapping[str, str] = field(default_factory=dict)
    hidden: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def specification(self) -> tuple[object, ...]:
        """What the operator was asked to deploy. Two states with equal ones differ by no upgrade."""
        return (self.is_rolled_back, dict(self.shown), dict(self.hidden), dict(self.settings))

    def document(self) -> dict[str, Any]:
        """Return the state as JSON."""
        return {
            "at": self.at.isoformat(),
            "is_rolled_back": self.is_rolled_back,
            "is_stable": self.is_stable,
            "job_id": self.job_id,
            "shown": dict(self.shown),
            "hidden": dict(self.hidden),
            "settings": dict(self.settings),
        }

    @classmethod
    def of(cls, subject: str, document: Mapping[str, Any]) -> ObjectState:
        """Return the state of ``subject`` from the JSON that the method ``document`` returned."""
        values = {**document, "at": datetime.fromisoformat(document["at"])}
        return cls(subject=subject, **values)


@dataclass(frozen=True, slots=True)
class Happening:
    """An event in the history of a cluster's jobs. ``key`` is the same whenever the event is seen again.

    ``engine_run_ids`` limits it to the jobs that have one of these runs; if it is empty, all jobs of the cluster have
    the event.
    """

    key: str
    at: datetime
    text: str
    tag: str
    engine_run_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class News:
    """What became known of the jobs of one deployment, which is the value of the label ``deployment``.

    ``target_url`` limits the end of a pod to the runs of its own cluster: blue and green have the same deployment, and
    both run for some time.
    """

    deployment: str
    what: ObjectState | Happening | PodEnd
    target_url: str | None = None


def state_of(document: Mapping[str, Any]) -> ObjectState | None:
    """Return the settled state of a FlinkDeployment, FlinkSessionJob or FlinkBlueGreenDeployment, or None."""
    if document.get("kind") == "FlinkBlueGreenDeployment":
        return _colored(document)
    reconciled = at_path(document, "status", "reconciliationStatus")
    is_rolled_back = at_path(reconciled, "state") == "ROLLED_BACK"
    at = _moment(at_path(reconciled, "reconciliationTimestamp"))
    if at is None or (not is_rolled_back and at_path(reconciled, "state") != "DEPLOYED"):
        return None
    used = _spec(at_path(reconciled, "lastReconciledSpec"))
    spec = _spec(at_path(reconciled, "lastStableSpec")) if is_rolled_back else used
    if spec is None:
        return None
    shown = {words: clean(str(value), length_max=_SHOWN_MAX) for words, value in _values(spec, _PLAIN)}
    return ObjectState(
        subject=_subject(document),
        at=at,
        is_rolled_back=is_rolled_back,
        is_stable=at_path(document, "status", "lifecycleState") in ("STABLE", "ROLLED_BACK"),
        job_id=run_id_of(at_path(document, "status", "jobStatus", "jobId")),
        restored_from=text_of(at_path(document, "status", "jobStatus", "upgradeSavepointPath")) or None,
        # The operator writes the mode of a rollback into the specification that failed, not into the stable one.
        upgrade_mode=text_of(at_path(used, "job", "upgradeMode")) or None,
        shown=shown,
        hidden={words: _digest(value) for words, value in _values(spec, _DIGESTED)} | {_REST: _digest(_rest(spec))},
        settings={clean(k, length_max=_SHOWN_MAX): _digest(v) for k, v in flat(spec.get("flinkConfiguration")).items()},
    )


def between(before: ObjectState, after: ObjectState) -> Happening | None:
    """Return what happened between two settled states of one object, or None if the operator changed nothing."""
    run_ids = tuple(i for i in dict.fromkeys((before.job_id, after.job_id)) if i)
    if "active color" in after.shown:
        text = f"Switched by the operator: {before.shown.get('active color')} to {after.shown['active color']}"
        run_ids = ()
    elif before.specification != after.specification:
        did = "Rolled back" if after.is_rolled_back and not before.is_rolled_back else _verb(before, after)
        changes = _changes(before, after)
        told = ", ".join(changes) if changes else "to the last stable specification" if after.is_rolled_back else ""
        link = ": " if changes else " "
        text = f"{did} by the operator{link if told else ''}{told}{_restored(after)}"
    elif before.is_stable and None not in (before.job_id, after.job_id) and before.job_id != after.job_id:
        # The recorded mode is that of the last upgrade, and a stateless one does not say how the job was redeployed.
        how = "" if after.upgrade_mode == "stateless" else _restored(after)
        text = f"Redeployed by the operator without a change of the specification{how}"
    else:
        return None
    key = f"{after.subject}/{after.at.timestamp():.3f}/{_digest([after.specification, after.job_id], 8)}"
    only = run_ids if after.subject.startswith("FlinkSessionJob/") else ()
    tag = "rollback" if text.startswith("Rolled back") else "upgrade"
    return Happening(key, after.at, clean(text, length_max=500), tag, only)


def snapshot_of(document: Mapping[str, Any]) -> Happening | None:
    """Return the end of a FlinkStateSnapshot; None if it has not ended or only names a savepoint that existed.

    A periodic one is told only if it came to nothing.
    """
    spec, status = document.get("spec"), document.get("status")
    state = at_path(status, "state")
    at = instant_of(at_path(status, "resultTimestamp")) or instant_of(at_path(status, "triggerTimestamp"))
    if state not in ("COMPLETED", "FAILED", "ABANDONED") or at is None:
        return None
    if at_path(spec, "savepoint", "alreadyExists") is True:
        return None
    trigger = text_of(at_path(document, "metadata", "labels", "snapshot.trigger-type"))
    if trigger == "PERIODIC" and state == "COMPLETED":
        return None
    kind = "Checkpoint" if at_path(spec, "checkpoint") is not None else "Savepoint"
    why = {"PERIODIC": ", taken periodically,", "UPGRADE": ", taken for an upgrade,"}.get(trigger, "")
    name = clean(key_of(document)[1], length_max=_SHOWN_MAX)
    path, error = text_of(at_path(status, "path")), text_of(at_path(status, "error"))
    told = {
        "COMPLETED": f"completed: {_path(path)}" if path else "completed",
        "FAILED": f"failed: {clean(_CREDENTIALS.sub('', error), length_max=200)}" if error else "failed",
        "ABANDONED": "was abandoned, because the job failed or was upgraded",
    }[state]
    text = f"{kind} {name}{why} {told}"
    return Happening(f"{_subject(document)}/{state}/{at.timestamp():.3f}", at, clean(text, length_max=500), "snapshot")


def _colored(document: Mapping[str, Any]) -> ObjectState | None:
    state = text_of(at_path(document, "status", "blueGreenState"))
    # The operator sets the ready time back to 1970 when it makes a color active, which is no time to ``instant_of``.
    ready, reconciled = (at_path(document, "status", f"{n}Timestamp") for n in ("deploymentReady", "lastReconciled"))
    at = instant_of(ready) or instant_of(reconciled)
    if not state.startswith("ACTIVE_") or at is None:
        return None
    return ObjectState(_subject(document), at, shown={"active color": state.removeprefix("ACTIVE_").lower()})


def _subject(document: Mapping[str, Any]) -> str:
    namespace, name = key_of(document)
    return f"{text_of(document.get('kind'))}/{namespace}/{name}/{text_of(at_path(document, 'metadata', 'uid'))}"


def _moment(value: Any) -> datetime | None:
    """Return the time of an epoch in milliseconds, which the operator writes as a number and Kubernetes as a text."""
    if isinstance(value, str) and value.isascii() and value.isdecimal():
        value = int(value[:16])
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 32_503_680_000_000:
        return instant_of(value)
    return instant_of(datetime.fromtimestamp(value / 1000, UTC).isoformat())


def _spec(text: Any) -> Mapping[str, Any] | None:
    if not isinstance(text, str) or len(text) > _SPEC_MAX:
        return None
    try:
        # Another version of the operator may leave out what has no value, which is no change.
        wrapper = json.loads(text, object_hook=lambda part: {k: v for k, v in part.items() if v is not None})
    except (ValueError, RecursionError):
        return None
    # Older operators write the specification without a wrapper.
    spec = wrapper.get("spec", wrapper) if isinstance(wrapper, dict) else None
    return spec if isinstance(spec, dict) else None


def _values(spec: Mapping[str, Any], places: Mapping[str, Sequence[str]]) -> list[tuple[str, Any]]:
    return [(words, value) for words, path in places.items() if (value := at_path(spec, *path)) is not None]


def _rest(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the specification without the parts that are compared by themselves or not at all."""
    told = {*_PLAIN.values(), *_DIGESTED.values(), *_NO_CHANGE}
    job = spec.get("job")
    rest = {name: value for name, value in spec.items() if (name,) not in told and name != "job"}
    if isinstance(job, dict):
        rest["job"] = {name: value for name, value in job.items() if ("job", name) not in told}
    return rest


def _digest(value: Any, size: int = _SHORT) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=size).hexdigest()


def _verb(before: ObjectState, after: ObjectState) -> str:
    states = (before.shown.get("state"), after.shown.get("state"))
    if states[0] != states[1] and "suspended" in states:
        return "Suspended" if states[1] == "suspended" else "Resumed"
    return "Upgraded"


def _changes(before: ObjectState, after: ObjectState) -> list[str]:
    found = [
        f"{words} {before.shown.get(words, 'none')} to {after.shown.get(words, 'none')}"
        for words in _PLAIN
        if words != "state" and before.shown.get(words) != after.shown.get(words)
    ]
    found += [
        f"{words} changed" for words in (*_DIGESTED, _REST) if before.hidden.get(words) != after.hidden.get(words)
    ]
    names = sorted(k for k in {*before.settings, *after.settings} if before.settings.get(k) != after.settings.get(k))
    if names:
        more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
        noun = "setting" if len(names) == 1 else "settings"
        found.append(f"{noun} {', '.join(names[:_NAMED_MAX])}{more} changed")
    return found


def _restored(after: ObjectState) -> str:
    if after.shown.get("state") == "suspended":
        return ""
    mode, path = after.upgrade_mode, after.restored_from
    if mode == "stateless":
        return ", without its state"
    if path is None or path == _LAST_STATE:
        return ", from its newest checkpoint" if mode == "last-state" or path == _LAST_STATE else ""
    noun = "checkpoint" if "/chk-" in path else "savepoint"
    return f", from {noun} {_path(path)}"


def _path(path: str) -> str:
    return clean(_CREDENTIALS.sub("", path), length_max=200)
