"""Restarts after Kubernetes ended the pod of a TaskManager: for its memory, or for another reason.

An end explains a restart if the exception of the restart names the pod or its address, or if the exception says that
some TaskManager was lost and names no other one. The time has to fit too: Flink notices the loss at once or after
``heartbeat.timeout``. In a session cluster, other jobs have TaskManagers too, so only the name counts. Everything else
is not decided.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from backend.analysis.verdict import evidence_rows as rows
from backend.analysis.verdict.case import Case
from backend.analysis.words import sentences as say
from backend.analysis.words.thresholds import POD_AFTER_S, POD_BEFORE_S, RESTARTS_OF_TRANSACTIONS_WINDOW_S
from backend.domain import known_messages
from backend.domain.known_messages import MessageCause
from backend.domain.pod_ends import PodEnd, PodEndReason
from backend.domain.verdict import Evidence, Verdict, VerdictKind

_SHOWN_MAX: Final = 3
_SEARCHED_MAX: Final = 20_000
_NAMED: Final = re.compile(
    r"(?:TaskManager with id |remote task manager '?)([^\s'/(]{1,253})(?:[/(]([^\s:')]{1,45}))?"
    r"(?:[^\[\n]{0,20}\[ (\S{1,253}) \])?"
)
"""The name and the address of the TaskManager that an exception says is lost."""
_MADE: Final = re.compile(r"(\S{1,253}):\d{1,5}-[0-9a-f]{1,32}", re.ASCII)
"""The id that a TaskManager of a standalone cluster gives itself: its address or name, its port, and a random part."""
_WORDS: Final[Mapping[PodEndReason, str]] = {
    PodEndReason.OUT_OF_MEMORY: "was killed because it used more memory than its limit (OOMKilled)",
    PodEndReason.EVICTED: "was evicted by its node (Evicted)",
    PodEndReason.KILLED: "was killed (exit code 137), and Kubernetes does not say why",
}
_NOTES: Final[Mapping[PodEndReason, tuple[str, ...]]] = {
    PodEndReason.OUT_OF_MEMORY: (
        "what cures it: raise the memory of the TaskManagers (taskmanager.memory.process.size, or"
        " spec.taskManager.resource.memory of the operator); if memory outside the heap grows (RocksDB, Python, native"
        " libraries), raise taskmanager.memory.jvm-overhead.fraction",
        "what does not help: settings of checkpoints; a larger heap within the same limit",
    ),
    PodEndReason.EVICTED: (
        "what cures it: request as much memory and disk for the pod as it uses, and look at the events of the node",
        "what does not help: settings of checkpoints",
    ),
    PodEndReason.KILLED: (),
}
WOULD_DECIDE: Final = "the events of the pod and the kernel's log of its node at that time"


@dataclass(frozen=True, slots=True)
class Ended:
    """The exceptions that ends of pods with the most frequent reason explain, as a part of a sentence.

    ``count`` of the ``total`` exceptions are explained.
    """

    reason: PodEndReason
    text: str
    count: int
    total: int

    @property
    def is_most(self) -> bool:
        """Whether more than half of the exceptions are explained."""
        return 2 * self.count > self.total


def ended(case: Case, exceptions: Sequence[tuple[datetime, str]]) -> Ended | None:
    """Return what the ends of pods explain of these exceptions; None if they explain none."""
    explained = [end for at, text in exceptions if (end := explaining(case, at, text)) is not None]
    if not explained:
        return None
    counts = Counter(end.reason for end in explained)
    reason, count = max(counts.items(), key=lambda c: (c[1], c[0] is PodEndReason.OUT_OF_MEMORY))
    named = list(dict.fromkeys(end for end in explained if end.reason is reason))
    shown = ", ".join(f"{end.pod} at {say.utc_minute(end.at)}" for end in named[:_SHOWN_MAX])
    more = f" and {len(named) - _SHOWN_MAX} more" if len(named) > _SHOWN_MAX else ""
    total = len(exceptions)
    who = "its exception follows" if total == 1 else f"{count} of its {total} exceptions follow"
    text = f"{who} the end of a TaskManager's pod, which {_WORDS[reason]}: {shown}{more}"
    return Ended(reason, text, count, total)


def explaining(case: Case, at: datetime, text: str) -> PodEnd | None:
    """Return the newest end of a pod that explains the exception ``text`` at ``at``; None if no end does."""
    since, until = at - timedelta(seconds=POD_BEFORE_S), at + timedelta(seconds=POD_AFTER_S)
    near = [end for end in case.evidence.pod_ends if since <= end.at <= until]
    if not near:
        return None
    head = text[:_SEARCHED_MAX]
    named = {part for found in _NAMED.finditer(head) for part in found.groups() if part}
    named |= {made[1] for part in named if (made := _MADE.fullmatch(part))}
    message = known_messages.explained(head)
    is_loss = message is not None and message.cause is MessageCause.HOST_LOST
    fitting = [
        end for end in near if end.pod in named or end.address in named or (is_loss and not named and not end.is_shared)
    ]
    return max(fitting, key=lambda end: end.at, default=None)


def evidence(case: Case, exceptions: Sequence[tuple[datetime, str]]) -> list[Evidence]:
    """Return rows on the ends of pods: those that explain exceptions, with the cure, and the others as not decided."""
    found = ended(case, exceptions)
    explained = {end for at, text in exceptions if (end := explaining(case, at, text)) is not None}
    noted: list[Evidence] = []
    if found is not None:
        text = f"exceptions that follow the end of a TaskManager's pod ({found.reason})"
        noted = [rows.number(text, "pod", found.count, "count"), *(rows.note(note) for note in _NOTES[found.reason])]
    since = case.evidence.now - timedelta(seconds=RESTARTS_OF_TRANSACTIONS_WINDOW_S)
    others = sorted((e for e in case.evidence.pod_ends if e not in explained and e.at >= since), key=lambda e: e.at)
    if others and case.has_restarts:
        newest = others[-1]
        noted.append(
            rows.note(
                f"not decided: pod {newest.pod} {_WORDS[newest.reason]} at {say.utc_minute(newest.at)}, and no"
                " exception of that time names it as lost"
            )
        )
    return noted


def with_ended_pods(case: Case, verdict: Verdict) -> Verdict:
    """Return the verdict with rows on the ends of pods within a day. A verdict on restarts has them already."""
    if not case.evidence.pod_ends or verdict.kind is VerdictKind.RESTARTS:
        return verdict
    since = case.evidence.now - timedelta(seconds=RESTARTS_OF_TRANSACTIONS_WINDOW_S)
    day = [e for e in case.evidence.exceptions if e[0] >= since]
    found = ended(case, day)
    said = [] if found is None else [rows.note(found.text)]
    return replace(verdict, evidence=(*verdict.evidence, *said, *evidence(case, day)))
