"""Judges drawn variants of described jobs, whose causes the runtime cannot have: a table beside that of ``culprits``.

A family is refused checkpoints, a coordinator, a store by how it fails, growth from restore to restore or over days,
a barrier that was forwarded, ended transactions, or the nearest neighbour of one of these. A sentence is wrong if its
kind or its culprit is not that of the family, or if it says what the case forbids. None of high confidence may be
wrong.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from backend.analysis.measures import growing
from tests.support.described_flink import DescribedFlink
from tests.support.drawn_cases import FAMILIES, FORWARDED, NEWER, Draw, Family, drawn
from tests.support.drawn_growth import GROWTH_FAMILIES
from tests.support.public_cases import Document, diagnosed, harm, read

_FENCED: Final = (
    "org.apache.flink.util.FlinkRuntimeException: Committing one of transactions failed\nCaused by: org.apache.kafka"
    ".common.errors.ProducerFencedException: Producer attempted an operation with an old epoch. Either there is a newer"
    " producer with the same transactionalId, or the producer's transaction has been expired by the broker."
)
_LOST: Final = "java.util.concurrent.TimeoutException: Heartbeat of TaskManager with id tm-3(host-a:8041) timed out."
_OWN: Final = "com.acme.OrderException: cannot place order 7"


def _looping(case: Document, *texts: str) -> Document:
    """Return the job as it restarts every minute with these exceptions, and with a state that keeps its size."""
    told = case["flink"]
    exceptions = [{"ago_s": 20 + 60 * n, "name": text.split(":")[0], "trace": text} for n, text in enumerate(texts)]
    well = {**told["checkpoints"][0], "id": 9, "ago_s": 10, "repeat": {"times": 9, "every_s": 20}}
    return {**case, "flink": {**told, "restarts": len(texts), "exceptions": exceptions, "checkpoints": [well]}}


def _transactions(case: Document, draw: Draw) -> Document:
    return _looping(case, *[_FENCED] * 3, _OWN)


def _lost_hosts(case: Document, draw: Draw) -> Document:
    return _looping(case, *[_LOST] * 4)


def _own_code(case: Document, draw: Draw) -> Document:
    return _looping(case, _OWN, _LOST, _OWN, _OWN)


_CALM: Final = "union-state-multiplies"
_LOOPS: Final = {
    "ended transactions": (_transactions, "says? that the broker", "not the cause"),
    "lost hosts": (_lost_hosts, "so they are not the cause", "transaction"),
    "own code, one lost host": (_own_code, "have no known message, and what they say decides", "not the cause"),
}
"""The restart loops by name: what adapts the case, what the answer must say, and what it must not say."""


@dataclass(frozen=True, slots=True)
class Described:
    """What was said of one drawn job. ``wrong`` is what is wrong with it; empty if it is right."""

    family: str
    wrong: str
    is_sure: bool
    sentence: str


def families() -> tuple[str, ...]:
    """Return the names of all families."""
    return (*(f.base for f in FAMILIES), *FORWARDED, *_LOOPS, *GROWTH_FAMILIES)


def judged(name: str, seed: int) -> Described:
    """Draw one job of the family, and judge what is said of it."""
    expect: Document
    if name in GROWTH_FAMILIES:
        return _judged_growth(name, seed)
    if name in FORWARDED:
        family, base = FORWARDED[name]
        says, expect = "", {}
    elif name in _LOOPS:
        adapt, says, never = _LOOPS[name]
        family = Family(_CALM, NEWER, "restarting", "restarts", adapt=adapt)
        expect, base = {"says_any": [says], "never": [never]}, read(family.base)
    else:
        family = next(f for f in FAMILIES if f.base == name)
        base = read(name)
        says, expect = "", base["expect"]
    case, draw = drawn(base, family.versions, random.Random(f"described {name} {seed}"))
    case = family.adapt(case, draw) if family.adapt else case
    said = diagnosed(DescribedFlink(case))
    wrong = harm(expect, said)
    if said.kind != family.kind:
        wrong.append(f"{said.kind} at {said.verdict['vertex']}")
    elif family.culprit is not None and said.verdict["vertex"] != draw.names[family.culprit]:
        wrong.append(f"at {said.verdict['vertex']}")
    if says and not said.says(says):
        wrong.append("another sentence")
    return Described(name, "; ".join(wrong), said.verdict["confidence"] == "high", said.verdict["sentence"])


def _judged_growth(name: str, seed: int) -> Described:
    """Draw one history, and judge what is said of its growth. Nothing else says how sure it is, so it is sure."""
    family = GROWTH_FAMILIES[name]
    history = family.draw(random.Random(f"described {name} {seed}"))
    found = growing.growth_of(history.hours, begun_at=history.begun_at)
    is_right = (found is not None) is family.said and (found is None or found.is_filling is family.is_filling)
    sentence = "no growth" if found is None else growing.sentence(found)
    return Described(name, "" if is_right else sentence, found is not None, sentence)


def sure_and_wrong(found: Sequence[Described]) -> list[Described]:
    """Return the jobs of which something wrong is said with high confidence."""
    return [one for one in found if one.wrong and one.is_sure]


def report(found: Sequence[Described]) -> str:
    """Return the table of confusions, and the count of wrong sentences of high confidence."""
    lines = ["", f"{'described':<28}{'right':>9}  said instead"]
    for name in dict.fromkeys(one.family for one in found):
        own = [one for one in found if one.family == name]
        wrong = Counter(one.wrong for one in own if one.wrong)
        said = ", ".join(f"{n} x {text}" for text, n in wrong.most_common())
        lines.append(f"{name:<28}{sum(not one.wrong for one in own):>4}/{len(own):<4}  {said}".rstrip())
    sure = sure_and_wrong(found)
    return "\n".join([*lines, "", f"wrong sentences of high confidence: {len(sure)}", *(o.sentence for o in sure)])
