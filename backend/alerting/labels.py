"""What an alert is identified by: its labels; and which alerts a silence hides: those its matchers fit.

An alert's identity is the fingerprint of its sorted labels; annotations do not identify. An episode is one life of an
alert, from pending to resolved: its id follows from rule, identity and begin, so a restart finds the same one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NewType

from backend.domain.clock import to_epoch_ms
from backend.domain.errors import FieldProblem, InvalidInputError

AlertId = NewType("AlertId", str)
Labels = Mapping[str, str]
LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_VALUE_MAX = 1000
_MATCHERS_MAX = 20


def fingerprint(labels: Labels) -> str:
    """16 hex digits that differ where labels differ, whatever their order."""
    text = "".join(f"{len(k)}:{k}{len(v)}:{v}" for k, v in sorted(labels.items()))
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()


def episode_id(rule: str, identity: str, began_at: datetime) -> AlertId:
    """The id of the episode of an alert that began at ``began_at``."""
    text = f"{rule}:{identity}:{to_epoch_ms(began_at)}"
    return AlertId("a" + hashlib.blake2b(text.encode(), digest_size=8).hexdigest())


@dataclass(frozen=True, slots=True)
class Matcher:
    """``name = value``; with ``is_equal`` False ``!=``. An absent label is an empty one, as in Alertmanager."""

    name: str
    value: str
    is_equal: bool = True

    def fits(self, labels: Labels) -> bool:
        """Whether it fits these labels."""
        return (labels.get(self.name, "") == self.value) is self.is_equal

    def __str__(self) -> str:
        return f"{self.name}{'=' if self.is_equal else '!='}{self.value}"


def fits_all(matchers: Sequence[Matcher], labels: Labels) -> bool:
    """Whether every matcher fits; no matcher at all fits nothing."""
    return bool(matchers) and all(m.fits(labels) for m in matchers)


def check_matchers(matchers: Sequence[Matcher]) -> None:
    """Raise ``InvalidInputError`` where these could not be the matchers of a silence."""
    problems = []
    if not 1 <= len(matchers) <= _MATCHERS_MAX:
        problems.append(FieldProblem("matchers", f"there are {len(matchers)}", f"1 to {_MATCHERS_MAX} matchers"))
    for i, matcher in enumerate(matchers):
        if not LABEL_NAME.fullmatch(matcher.name):
            problems.append(
                FieldProblem(f"matchers[{i}].name", f"{matcher.name[:80]!r} is no label's name", LABEL_NAME.pattern)
            )
        if len(matcher.value) > _VALUE_MAX or "\0" in matcher.value:
            allowed = f"up to {_VALUE_MAX} characters"
            problems.append(FieldProblem(f"matchers[{i}].value", "is too long or holds NUL", allowed))
    # One that fits an empty label set hides everything, also what nobody has thought of yet.
    if not problems and fits_all(matchers, {}):
        problems.append(
            FieldProblem("matchers", "would hide every alert there is", "one matcher at least of a label with a value")
        )
    if problems:
        raise InvalidInputError(problems, what="silence")
