"""The cases that were rebuilt from public reports, and what a right answer to each of them holds.

The member ``expect`` of a case has these conditions:

* ``health_in``, ``health_not``: the health of the job;
* ``kind_in``, ``kind_not``: the kind of the verdict. The second cause counts for ``kind_in``;
* ``vertex``, ``subtasks``: the culprit. The second cause counts;
* ``says_any``, ``says_all``, ``says_none``: patterns in the whole answer;
* ``lint``: codes among the settings to check;
* ``never``, ``advice_never``: what is false or does harm: patterns in the answer, or in the headline of advice;
* ``advice_any``: a pattern in the headline of advice; ``no_advice``: nothing to change is advised.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Protocol

import orjson

from collectors import diagnose
from collectors.base import FlinkTransport
from collectors.diagnosis_print import Answer, DiagnosisFormat, printed
from collectors.time_left import TOTAL_S

Document = dict[str, Any]

FOLDER: Final = Path(__file__).resolve().parents[1] / "contract" / "public_cases"
RECORDINGS: Final = FOLDER / "recordings"


def cases(of: str) -> list[Document]:
    """Return all cases that have this member: ``flink``, ``recording`` or ``spark``."""
    return [case for case in map(read, sorted(path.stem for path in FOLDER.glob("*.json"))) if of in case]


def read(name: str) -> Document:
    """Return the case of this name."""
    case: Document = orjson.loads((FOLDER / f"{name}.json").read_bytes())
    return case


@dataclass(frozen=True, slots=True)
class CaseAnswer:
    """What the product said about the job of a case."""

    health: str | None
    verdict: Document
    advised: tuple[str, ...]
    """The headlines of the recommendations."""
    lints: tuple[str, ...]
    """The codes of the settings to check."""
    text: str
    """The whole answer, in which each run of white space is one blank."""

    @property
    def kind(self) -> str | None:
        return self.verdict.get("kind")

    @property
    def causes(self) -> list[Document]:
        """Return the verdict and, if there is one, its second cause."""
        return [cause for cause in (self.verdict, self.verdict.get("second")) if cause]

    def says(self, pattern: str) -> bool:
        return _found(pattern, self.text)

    def advises(self, pattern: str) -> bool:
        return any(_found(pattern, headline) for headline in self.advised)


def answer(health: str | None, verdict: Document, advice: Document, text: str) -> CaseAnswer:
    """Return the answer from a job's verdict and advice as the API and ``diagnose`` write them."""
    return CaseAnswer(
        health=health,
        verdict=verdict,
        advised=tuple(one["headline"] for one in advice["recommendations"]),
        lints=tuple(one["code"] for one in advice["lints"]),
        text=re.sub(r"\s+", " ", text),
    )


class VirtualTarget(FlinkTransport, Protocol):
    """A transport that is also the clock of the reader, so that only its pauses take time."""

    def now(self) -> datetime: ...

    def monotonic_s(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


def diagnosed(target: VirtualTarget) -> CaseAnswer:
    """Run ``diagnose`` on a target in virtual time."""
    asked = diagnose.answer_of(
        target, job=None, show_step=lambda text: None, clock=target, sleep=target.sleep, deadline_s=TOTAL_S
    )
    return said_of(asyncio.run(asked))


def said_of(answered: Answer) -> CaseAnswer:
    """Return what ``diagnose`` prints about the one job, as JSON and with ``--verbose``."""
    (job,) = orjson.loads(printed(answered, DiagnosisFormat.JSON))["jobs"]
    text = printed(answered, DiagnosisFormat.TEXT, is_verbose=True)
    # The name of the job is not a statement about it.
    return answer(job["health"], job["verdict"], job["advice"], text.replace(job["job"], "THE-JOB"))


def _found(pattern: str, text: str) -> bool:
    # The text has no two blanks in a row, so a pattern with two blanks means one.
    return re.search(re.sub(r" {2,}", " ", pattern), text, re.IGNORECASE) is not None


def faults(expected: Document, said: CaseAnswer) -> list[str]:
    """Return what is false or missing in an answer. An answer without faults is right."""
    return [fault for condition, wanted in expected.items() for fault in _CONDITIONS[condition](wanted, said)]


def harm(expected: Document, said: CaseAnswer) -> list[str]:
    """Return what an answer says that is false or does harm."""
    return faults({key: expected[key] for key in ("never", "advice_never") if key in expected}, said)


_Condition = Callable[[Any, CaseAnswer], Iterator[str]]


def _one(name: str, holds: Callable[[Any, CaseAnswer], bool]) -> _Condition:
    def check(wanted: Any, said: CaseAnswer) -> Iterator[str]:
        if not holds(wanted, said):
            yield f"{name} {wanted}: {said.health}, {[(c['kind'], c['vertex']) for c in said.causes]}, {said.advised}"

    return check


def _for_each(name: str, holds: Callable[[str, CaseAnswer], bool]) -> _Condition:
    def check(wanted: list[str], said: CaseAnswer) -> Iterator[str]:
        yield from (f"{name}: {pattern}" for pattern in wanted if not holds(pattern, said))

    return check


_CONDITIONS: Final[dict[str, _Condition]] = {
    "health_in": _one("health_in", lambda wanted, said: said.health in wanted),
    "health_not": _one("health_not", lambda wanted, said: said.health not in wanted),
    "kind_in": _one("kind_in", lambda wanted, said: any(cause["kind"] in wanted for cause in said.causes)),
    "kind_not": _one("kind_not", lambda wanted, said: said.kind not in wanted),
    "vertex": _one(
        "vertex", lambda wanted, said: any((cause["vertex"] or "").startswith(wanted) for cause in said.causes)
    ),
    "subtasks": _one("subtasks", lambda wanted, said: any(cause["subtasks"] == wanted for cause in said.causes)),
    "says_any": _one("says_any", lambda wanted, said: any(map(said.says, wanted))),
    "says_all": _for_each("says nothing of", lambda pattern, said: said.says(pattern)),
    "says_none": _for_each("says", lambda pattern, said: not said.says(pattern)),
    "lint": _for_each("no setting to check", lambda code, said: code in said.lints),
    "never": _for_each("says what is false", lambda pattern, said: not said.says(pattern)),
    "advice_never": _for_each("advises what does harm", lambda pattern, said: not said.advises(pattern)),
    "advice_any": _one("advice_any", lambda wanted, said: any(map(said.advises, wanted))),
    "no_advice": _one("no_advice", lambda wanted, said: not said.advised),
}
