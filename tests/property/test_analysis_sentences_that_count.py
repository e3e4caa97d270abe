"""A sentence of a verdict that counts checkpoints agrees with the checkpoints that it counts.

The run is drawn whole. The analysis gets its newest part, as a collector does whose engine forgets, and the counters of
the engine. Every sentence that counts must be read by one of ``CLAIMS``, so that a new one cannot be left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from hypothesis import given, note, settings
from hypothesis import strategies as st

from backend.analysis.health.health import judged_checkpoints
from backend.analysis.measures.evidence import JobEvidence
from backend.analysis.verdict.verdict import checkpoint_verdict, diagnose
from backend.domain.checkpoint import Checkpoint, CheckpointCounts, CheckpointKind, CheckpointStatus
from backend.domain.failure import FailureReason
from backend.domain.verdict import Verdict
from tests.support.handwritten_jobs import LAST, MIDDLE, SOURCE, detail, failed, held_back, in_progress, job, quick
from tests.support.handwritten_runs import CALM, FULL_LAST, SLOW_DELAYS, declined, snapshotting

KINDS = {
    "quick": quick,
    "slow": lambda n: held_back(n, SLOW_DELAYS),
    "sync": lambda n: snapshotting(n, sync=4_000),
    "async": lambda n: snapshotting(n, async_=6_000),
    "expired": lambda n: failed(
        n, detail(SOURCE, first=[5] * 4), detail(MIDDLE, first=[9] * 4), detail(LAST, first=[20, 30, 40, None])
    ),
    "declined": lambda n: declined(n, {3}),
    "aborted": lambda n: failed(n, detail(SOURCE, first=[None] * 4), reason=FailureReason.SUBSUMED),
    "savepoint": lambda n: _savepoint(quick(n)),
}


@dataclass(frozen=True)
class Seen:
    """The checkpoints of a run that a sentence may count: those that are judged, and all of them."""

    judged: tuple[Checkpoint, ...]
    run: tuple[Checkpoint, ...]
    is_of_one: bool
    first_id: int

    def newest(self, count):
        return self.judged[-count:]

    def periodic(self):
        return [c for c in self.run if c.header.kind is CheckpointKind.CHECKPOINT and c.header.status.is_terminal]


def _savepoint(checkpoint):
    return replace(checkpoint, header=replace(checkpoint.header, kind=CheckpointKind.SAVEPOINT))


def _is_failed(checkpoint):
    return checkpoint.header.status is CheckpointStatus.FAILED


def _is_completed(checkpoint):
    return checkpoint.header.status is CheckpointStatus.COMPLETED


def _is_only_one(seen):
    return not seen.is_of_one and seen.first_id <= 1 and len(seen.judged) == 1 and not _others(seen)


def _others(seen):
    """Return the checkpoints of the run that are judged by nobody, but those aborted from outside."""
    ids = {c.header.checkpoint_id for c in seen.judged}
    return [
        c
        for c in seen.periodic()
        if c.header.checkpoint_id not in ids and c.header.failure_reason is not FailureReason.SUBSUMED
    ]


def _last(seen, part, of, verb):
    newest = seen.newest(int(of))
    struck = sum(map(_is_failed, newest)) if verb in ("expired", "failed") else None
    return not seen.is_of_one and len(newest) == int(of) and struck in (None, int(part))


def _so_far(seen, part, of):
    return not _others(seen) and int(of) == len(seen.judged) and int(part) == sum(map(_is_failed, seen.judged))


def _names_own(seen, number):
    return int(number) in [c.header.checkpoint_id for c in (*seen.judged, *seen.run)]


def _upto(seen, count):
    """Return whether this many checkpoints are there: those that are judged, and one more that is open."""
    return 1 < int(count) <= len(seen.judged) + 1 and not seen.is_of_one


CLAIMS = {
    r"[Tt]he only checkpoint so far": _is_only_one,
    r"duration of the only completed checkpoint": lambda s: (
        not s.is_of_one and s.first_id <= 1 and sum(map(_is_completed, s.periodic())) == 1
    ),
    r"[Tt]he newest checkpoint (?:failed|expired|took)": lambda s: not s.is_of_one,
    r"(\d+) of the last (\d+) checkpoints (expired|failed|took)": _last,
    r"(?:All|Both) of the last (\d+) checkpoints (expired|failed)": lambda s, n, verb: _last(s, n, n, verb),
    r"(\d+) of the (\d+) checkpoints so far failed": _so_far,
    r"The (\d+) checkpoints so far took": lambda s, n: not _others(s) and int(n) == len(s.judged),
    r"[Tt]he newest (\d+) checkpoints": lambda s, n: int(n) <= len(s.judged) and not s.is_of_one,
    r"checkpoints that failed, of the last (\d+)": lambda s, n: not s.is_of_one and int(n) == len(s.judged),
    r"(\d+) checkpoints? failed and none has completed": lambda s, n: (
        not any(map(_is_completed, s.run)) and int(n) == sum(map(_is_failed, s.judged))
    ),
    r"No checkpoint has completed yet": lambda s: not any(map(_is_completed, s.run)),
    r"median duration of (\d+) completed checkpoints": lambda s, n: (
        int(n) == sum(map(_is_completed, s.judged)) and int(n) > 1
    ),
    r"(?:all|\d+ of the) (\d+) checkpoints before it": lambda s, n: s.is_of_one and int(n) < len(s.run),
    r"duration of (\d+) checkpoints before it": lambda s, n: s.is_of_one and int(n) < len(s.run),
    r"in \d+ of (\d+) checkpoints": _upto,
    r"in \d+ of 1 checkpoint\b": lambda s: len(s.judged) == 1 or s.is_of_one,
    r"median of (\d+) checkpoints": _upto,
    r"duration of the (\d+) before": lambda s, n: int(n) < len(s.judged),
    r"\bcheckpoint (\d+) failed": _names_own,
    r"duration of checkpoint (\d+)": _names_own,
}
# What counts: the words for a whole sample, and a number of checkpoints.
COUNTS = re.compile(
    r"\bonly (?:one|checkpoint|completed)|so far|\d+ checkpoints|\d+ of the \d+|\d+ of \d+ checkpoint|of the last"
    r"|none has|none is"
)
# These count a subset whose size each rule has its own word for: at most as many as are judged.
NAMED = re.compile(r"checkpoints in which|these checkpoints|^a checkpoint that completed or expired")


def sentences(verdict: Verdict):
    yield from (verdict.sentence, verdict.headline or "", verdict.detail or "")
    if verdict.second is not None:
        yield verdict.second.sentence
    yield from (row.statement for row in verdict.evidence)
    yield from verdict.would_decide


def assert_true(verdict: Verdict, seen: Seen) -> None:
    for sentence in sentences(verdict):
        note(sentence)
        rest = sentence
        for pattern, is_true in CLAIMS.items():
            for match in re.finditer(pattern, sentence):
                assert is_true(seen, *match.groups()), sentence
            rest = re.sub(pattern, "", rest)
        assert NAMED.search(rest) or not COUNTS.search(rest), f"no claim reads the count in: {sentence}"


@st.composite
def runs(draw):
    """Draw a run whole, the evidence of its newest part, and the id of its first checkpoint."""
    first_id = draw(st.sampled_from([1, 1, 63]))
    usual = draw(st.sampled_from(sorted(KINDS)))
    names = draw(st.lists(st.one_of(st.just(usual), st.sampled_from(sorted(KINDS))), min_size=1, max_size=26))
    run = [KINDS[name](first_id + n) for n, name in enumerate(names)]
    completed, failed_ = sum(map(_is_completed, run)), sum(map(_is_failed, run))
    kept = run[-draw(st.sampled_from([1, 2, 3, 10, 26])) :]
    if draw(st.booleans()):
        kept.append(in_progress(first_id + len(run), detail(SOURCE, first=[5] * 4), detail(LAST, first=[None] * 4)))
    # Without counters, only the ids show that there were others.
    counts = CheckpointCounts(0, len(run), 0, completed, failed_) if draw(st.booleans()) else None
    pressure = draw(st.sampled_from([[], CALM, FULL_LAST]))
    return run, job(kept, pressure, counts=counts), first_id


def seen_by_job(evidence: JobEvidence, run, first_id) -> Seen:
    judged = judged_checkpoints(evidence.checkpoints, has_restarts=False)
    return Seen(judged, tuple(run), is_of_one=False, first_id=first_id)


@settings(max_examples=200)
@given(runs())
def test_what_the_verdict_on_a_job_counts_is_true(drawn):
    run, evidence, first_id = drawn

    # The window of an intermittent cause is longer than the judged one.
    window = judged_checkpoints(evidence.checkpoints, has_restarts=False, count_max=20)
    found = diagnose(evidence)
    seen = seen_by_job(evidence, run, first_id)
    is_mixed = found.verdict.intermittence is not None

    assert_true(
        found.verdict, replace(seen, judged=window) if is_mixed and found.health.value == "intermittent" else seen
    )


def test_the_only_completed_checkpoint_is_not_one_of_several_of_which_only_one_is_judged():
    run = [quick(1), *(declined(n, {3}) for n in range(2, 11)), quick(11)]

    found = diagnose(job(run, []))

    assert "duration of checkpoint 11" in list(sentences(found.verdict))


def test_the_evidence_of_an_intermittent_cause_counts_the_same_checkpoints_as_its_sentence():
    """The sentence counted 3 of the last 11 checkpoints, and a row the durations of 10."""
    slow = {8, 9, 11}

    found = diagnose(job([KINDS["async" if n in slow else "quick"](n) for n in range(1, 12)], []))

    assert found.verdict.sentence.startswith("3 of the last 11 checkpoints took")
    assert "median duration of 11 completed checkpoints" in list(sentences(found.verdict))


@settings(max_examples=200)
@given(runs(), st.data())
def test_what_the_verdict_on_one_checkpoint_counts_is_true(drawn, data):
    _, evidence, first_id = drawn
    own = data.draw(st.sampled_from(evidence.checkpoints))

    found = checkpoint_verdict(own, evidence)

    assert_true(found, Seen((own,), evidence.checkpoints, is_of_one=True, first_id=first_id))


def test_the_63rd_checkpoint_that_failed_is_not_the_only_one():
    """The page of the checkpoint said "the only checkpoint so far failed", since it counted itself alone."""
    run = [*(quick(n) for n in range(1, 63)), KINDS["expired"](63)]

    found = checkpoint_verdict(run[-1], job(run[-26:], FULL_LAST))

    assert any(row.statement.startswith("checkpoint 63 failed (") for row in found.evidence)
    assert not any("only" in s for s in sentences(found))
