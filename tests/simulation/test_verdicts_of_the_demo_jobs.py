"""Goal: ``diagnose`` names the vertex that slows a job of the reference runtime, and no other vertex.

Method: the jobs run in the engine in virtual time. The runtime's own REST API, the collector's parser and the
diagnosis read them like a live target. The demo jobs come first. Then come random jobs with a known culprit: a seed
chooses the vertex, the subtasks, the parallelism and the kind of checkpoints. To replay one run: pytest
tests/simulation/test_verdicts_of_the_demo_jobs.py -k "straggler-seed-1"
"""

from __future__ import annotations

import asyncio
import json
import random
from datetime import timedelta

import pytest

from backend.analysis.measures.evidence import JobEvidence
from backend.analysis.verdict.verdict import checkpoint_verdict, diagnose
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.clock import from_epoch_ms
from backend.domain.failure import FailureReason
from backend.domain.verdict import Confidence, Diagnosis, Health, VerdictKind
from backend.runtime.demo import demo_names, demo_path
from backend.runtime.engine.jobfile import load_job
from collectors.diagnosis_print import Answer, as_json
from tests.support.drawn_jobs import CAUSES, DrawnJob
from tests.support.simulated_target import ORIGIN_EPOCH_MS, SimulatedTarget

ORIGIN = from_epoch_ms(ORIGIN_EPOCH_MS)
ALL = [0, 1, 2, 3]
TROUBLE = {"slow", "failing"}
DEMO = {
    "orders-aligned": (TROUBLE, "capacity", "aggregate", ALL, "start-delay"),
    "orders-unaligned": ({"healthy"}, "capacity", "aggregate", ALL, None),
    "orders-aligned-timeout": ({"healthy"}, "capacity", "aggregate", ALL, None),
    "orders-healthy": ({"healthy"}, "none", None, [], None),
    "clicks-hot-key": (TROUBLE, "skew", "count-by-user", None, "start-delay"),
    "sensors-straggler": (TROUBLE, "straggler", "clean", [2], "start-delay"),
    "ledger-slow-store": (TROUBLE, "store", "balance-by-account", ALL, "async"),
}
DEMO_RUN_S = 48
DRAWN_RUN_S = 36
SEEDS = 3


async def _read(target: SimulatedTarget, run_s: float) -> tuple[Answer, list[JobEvidence]]:
    await target.sleep(run_s)
    return await target.diagnosed(), await target.evidence()


@pytest.fixture(scope="module")
def demo() -> tuple[Answer, dict[str, JobEvidence], list[int]]:
    """Run all demo jobs together, as in the live runtime.

    Return the diagnosis, the evidence of each job, and the number of records that each subtask of the job with a
    hot key received.
    """

    async def run() -> tuple[Answer, dict[str, JobEvidence], list[int]]:
        names = demo_names()
        specs = [load_job(demo_path(name)) for name in names]
        async with SimulatedTarget(specs) as target:
            answer, evidence = await _read(target, DEMO_RUN_S)
            of_each = {spec.name: found for spec, found in zip(specs, evidence, strict=True)}
            return answer, of_each, target.records_in(names.index("hot-key"), "count-by-user")

    return asyncio.run(run())


@pytest.mark.parametrize("name", sorted(DEMO))
def test_the_verdict_of_each_demo_job_is_the_problem_built_into_it(demo, name):
    answer, _, records = demo
    healths, kind, vertex, subtasks, phase = DEMO[name]
    found = {job["job"]: job for job in json.loads(as_json(answer))["jobs"]}[name]
    verdict = found["verdict"]

    assert answer.problems == ()
    assert found["health"] in healths, verdict["sentence"]
    assert (verdict["kind"], verdict["vertex"], verdict["phase"]) == (kind, vertex, phase), verdict["sentence"]
    expected = [records.index(max(records))] if subtasks is None else subtasks
    assert verdict["subtasks"] == expected, verdict["sentence"]
    assert verdict["confidence"] != "low"


@pytest.mark.parametrize("name", sorted(DEMO))
def test_each_slow_checkpoint_of_a_demo_job_names_the_same_culprit_as_the_job(demo, name):
    _, every, records = demo
    _, kind, vertex, subtasks, _ = DEMO[name]
    evidence = every[name]
    ended = [c for c in evidence.checkpoints if c.header.status.is_terminal]
    assert len(ended) >= 3

    for checkpoint in ended[-3:]:
        verdict = checkpoint_verdict(checkpoint, evidence)
        found = (verdict.kind.value, verdict.vertex)
        assert found == (kind, vertex), f"checkpoint {checkpoint.header.checkpoint_id}: {verdict.sentence}"
        if subtasks is None:
            assert verdict.subtasks == (records.index(max(records)),)


def test_unaligned_checkpoints_change_the_health_but_not_the_culprit(demo):
    """The two jobs differ only in the kind of checkpoints.

    The same culprit is named, even if unaligned checkpoints hide its effect.
    """
    found = {job.name: job.diagnosis for job in demo[0].jobs}
    aligned, unaligned = found["orders-aligned"], found["orders-unaligned"]
    one, other = aligned.verdict, unaligned.verdict

    assert aligned.health is not unaligned.health
    assert (one.kind, one.vertex, one.subtasks) == (other.kind, other.vertex, other.subtasks)


async def _diagnosed(job: DrawnJob) -> tuple[Diagnosis, DrawnJob, tuple[int, ...]]:
    async with SimulatedTarget([job.spec]) as target:
        await target.sleep(DRAWN_RUN_S)
        (evidence,) = await target.evidence()
        assert any(c.header.status is not CheckpointStatus.IN_PROGRESS for c in evidence.checkpoints)
        expected = job.subtasks
        if expected is None:
            records = target.records_in(0, job.vertex or "")
            expected = (records.index(max(records)),)
        return diagnose(evidence), job, expected


@pytest.mark.anyio
@pytest.mark.parametrize("seed", range(SEEDS), ids=lambda seed: f"seed-{seed}")
@pytest.mark.parametrize("cause", sorted(CAUSES))
async def test_the_drawn_culprit_is_named(cause, seed):
    found, job, subtasks = await _diagnosed(CAUSES[cause](random.Random(f"{cause}/{seed}")))
    verdict = found.verdict
    why = f"{cause}, seed {seed}, {job.mode}: {found.health.value}, {verdict.sentence}"

    assert (verdict.kind, verdict.vertex, verdict.subtasks) == (job.kind, job.vertex, subtasks), why
    assert found.health in (*job.healths, Health.TOO_FEW), why
    assert verdict.confidence is not Confidence.LOW or found.health is Health.TOO_FEW, why
    assert (verdict.phase is None) == (found.health is Health.HEALTHY or job.kind is VerdictKind.NONE), why


@pytest.mark.anyio
@pytest.mark.parametrize("ahead_s", [-3_600, -30, 30, 3_600])
async def test_a_clock_difference_makes_no_open_checkpoint_overdue(ahead_s):
    """The snapshots of this job take most of its interval, so that a checkpoint is in progress most of the time."""
    async with SimulatedTarget([load_job(demo_path("slow-store"))], ahead_s=ahead_s) as target:
        await target.sleep(39.5)
        (evidence,) = await target.evidence()
        opened = [c for c in evidence.checkpoints if c.header.status is CheckpointStatus.IN_PROGRESS]

    assert opened, "no checkpoint is in progress at this instant: choose another"
    age_s = (evidence.now - opened[0].header.triggered_at).total_seconds()
    assert 0 <= age_s <= 5, f"our clock is {ahead_s} s ahead"


@pytest.mark.anyio
async def test_after_an_expiry_gauges_show_when_barriers_reached_subtasks_that_did_not_acknowledge():
    """Like the collector of a live target, poll every two seconds, from before a trigger until after the expiry."""
    async with SimulatedTarget([load_job(demo_path("backpressured"))]) as target:
        await target.sleep(40)
        gathered = await target.watched(polls=12, every_s=2)
    evidence = gathered.evidence()
    # Earlier checkpoints were not polled while in progress. The barriers of the last checkpoint may not have arrived
    # yet.
    expired = [c for c in evidence.checkpoints[:-1] if c.header.failure_reason is FailureReason.EXPIRED]
    watched = [c for c in expired if c.header.triggered_at > ORIGIN + timedelta(seconds=40)]

    assert len(watched) >= 2
    for checkpoint in watched:
        silent = {(d.vertex_id, i) for d in checkpoint.details for i in d.pending}
        late = evidence.late(checkpoint.header.checkpoint_id)
        assert silent <= {(b.vertex_id, b.subtask) for b in late}, checkpoint.header.checkpoint_id
        verdict = checkpoint_verdict(checkpoint, evidence)
        assert any("the barrier reached aggregate subtask" in row.statement for row in verdict.evidence)
