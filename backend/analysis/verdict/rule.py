"""A rule of the verdict: its name, what it explains, what must be known, how it finds a cause and how it tells it.

``rules`` lists all rules in their order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from backend.analysis.verdict.case import Case
from backend.domain.verdict import Verdict

Found = TypeVar("Found")


class Explains(StrEnum):
    """What a rule explains. This decides which other rules it competes with."""

    EVERYTHING = "everything"
    """The first rule that applies decides, and no other rule is asked."""
    SYNC_PARTS = "sync parts"
    ASYNC_PARTS = "async parts"
    TRIGGERS = "the coordinator and the sources"
    WAY = "the way of the barriers"
    THE_REST = "what no other rule explains"
    """The first rule that applies decides, if the parts of the checkpoints have no cause that is large enough."""


PARTS = (Explains.SYNC_PARTS, Explains.ASYNC_PARTS, Explains.TRIGGERS, Explains.WAY)
"""The parts of a checkpoint. Each part has at most one cause, by the first rule that applies.

The cause that takes most of the time is the verdict. If two take equally much, the earlier part decides.
"""


@dataclass(frozen=True, slots=True)
class Need:
    """What must be known, or must hold, before a rule looks for its cause."""

    text: str
    is_met: Callable[[Case], bool]


JOB = Need("the verdict is about a job", lambda case: not case.is_of_one)
SUFFERING = Need("checkpoints fail or take long", lambda case: case.is_suffering)
WELL = Need("checkpoints neither fail nor take long", lambda case: not case.is_suffering)
FAILED = Need("a checkpoint failed", lambda case: any(w.is_failed for w in case.walked))
WAITING = Need("a checkpoint expired, or has been open for too long", lambda case: bool(case.waiting))
NONE_BEGINS = Need("every checkpoint is refused or declined", lambda case: case.report.refusal is not None)
READ = Need("back-pressure was read", lambda case: bool(case.loads))
UNREAD = Need("back-pressure was not read", lambda case: not case.loads)
FULL = Need("a full subtask is below one that is held back", lambda case: case.suspect is not None)
NOT_FULL = Need("no full subtask is below one that is held back", lambda case: case.suspect is None)
STRUCK = Need("only some checkpoints are struck", lambda case: case.report.is_mixed)


@dataclass(frozen=True, slots=True)
class Rule(Generic[Found]):
    """One cause that a verdict can have.

    ``find`` returns what it found out about the cause, or None if the cause does not apply. It is called only if all
    ``needs`` are met. ``tell`` makes the verdict from it: the sentence, the evidence, and what would decide.
    """

    name: str
    explains: Explains
    needs: tuple[Need, ...]
    find: Callable[[Case], Found | None]
    tell: Callable[[Case, Found], Verdict]

    def verdict_of(self, case: Case) -> Verdict | None:
        """Return the verdict by this rule, or None if the rule does not apply."""
        if not all(need.is_met(case) for need in self.needs):
            return None
        finding = self.find(case)
        return None if finding is None else self.tell(case, finding)
