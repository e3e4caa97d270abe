"""Labels, which identify an alert, and matchers, which select the alerts that a silence hides.

An alert's identity is the fingerprint of its sorted labels. Annotations are not part of it. An episode of an alert
lasts from pending to its end. The id of an episode is derived from its rule, its identity and its start time, so the
id is the same after a restart of the service.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NewType

from backend.domain.clock import to_epoch_ms
from backend.domain.errors import FieldProblem, InvalidInputError

AlertId = NewType("AlertId", str)
IncidentId = NewType("IncidentId", str)
Labels = Mapping[str, str]
LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
RESERVED: Final = frozenset({"job", "instance"})
"""Labels that Prometheus sets on everything it scrapes. No alert and no metric of this service has them."""
_VALUE_MAX = 1000
_MATCHERS_MAX = 20


def fingerprint(labels: Labels) -> str:
    """Return 16 hexadecimal digits that identify the labels, regardless of their order."""
    text = "".join(f"{len(k)}:{k}{len(v)}:{v}" for k, v in sorted(labels.items()))
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()


def without_reserved(labels: Labels) -> dict[str, str]:
    """Return the labels of a target. The prefix ``target_`` is added to the names that Prometheus itself uses."""
    return {f"target_{name}" if name in RESERVED else name: value for name, value in labels.items()}


def renamed(labels: Labels) -> dict[str, str]:
    """Return stored labels under their current names.

    An earlier version stored the name of a job as ``job``, and Barrierscope's id of the job as ``job_id``.
    """
    if "job_id" not in labels or "job" not in labels:
        return dict(labels)
    names = {"job": "job_name"}
    return {names.get(name, name): value for name, value in labels.items() if name != "job_id"}


def episode_id(rule: str, identity: str, began_at: datetime) -> AlertId:
    """Return the id of the episode that began at ``began_at``."""
    text = f"{rule}:{identity}:{to_epoch_ms(began_at)}"
    return AlertId("a" + hashlib.blake2b(text.encode(), digest_size=8).hexdigest())


@dataclass(frozen=True, slots=True)
class Matcher:
    """A condition on one label: ``name = value``, or ``name != value`` if ``is_equal`` is False.

    An absent label equals an empty one, as in Alertmanager.
    """

    name: str
    value: str
    is_equal: bool = True

    def fits(self, labels: Labels) -> bool:
        """Return whether the labels fulfil this condition."""
        return (labels.get(self.name, "") == self.value) is self.is_equal

    def __str__(self) -> str:
        return f"{self.name}{'=' if self.is_equal else '!='}{self.value}"


def fits_all(matchers: Sequence[Matcher], labels: Labels) -> bool:
    """Return whether the labels fulfil every matcher; False if there are no matchers."""
    return bool(matchers) and all(m.fits(labels) for m in matchers)


def check_matchers(matchers: Sequence[Matcher]) -> None:
    """Raise ``InvalidInputError`` if these matchers are not valid for a silence."""
    problems = []
    if not 1 <= len(matchers) <= _MATCHERS_MAX:
        problems.append(FieldProblem("matchers", f"there are {len(matchers)}", f"1 to {_MATCHERS_MAX} matchers"))
    for i, matcher in enumerate(matchers):
        if not LABEL_NAME.fullmatch(matcher.name):
            problems.append(
                FieldProblem(f"matchers[{i}].name", f"{matcher.name[:80]!r} is not a label name", LABEL_NAME.pattern)
            )
        if len(matcher.value) > _VALUE_MAX or "\0" in matcher.value:
            allowed = f"up to {_VALUE_MAX} characters"
            problems.append(FieldProblem(f"matchers[{i}].value", "is too long or contains NUL", allowed))
    # Matchers that fit even an alert without labels would hide every alert, including future ones.
    if not problems and fits_all(matchers, {}):
        problems.append(
            FieldProblem("matchers", "would hide every alert", "at least one matcher for a label with a value")
        )
    if problems:
        raise InvalidInputError(problems, what="silence")
