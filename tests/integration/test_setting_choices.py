"""The choices of settings in a real store: who makes them, when, and where the advice reads them."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta
from functools import partial

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest

from backend.advisor.advice import Interval
from backend.advisor.choice.choosing import refused
from backend.advisor.simulating import answered
from backend.advisor.situation import situation
from backend.advisor.twin.tiers.tiers import QuickTiers
from backend.domain.advice import Metric, Topic
from backend.domain.connection import ANYWHERE
from backend.domain.engines import RUNTIME
from backend.domain.target import TargetOrigin
from backend.services.advice.cards import AdviceService
from backend.services.jobs.analysed import AnalysedJobs
from backend.services.jobs.evidence import EvidenceReader
from backend.services.whatif.choosing import SettingChooser
from backend.store.advice.choices import choices_of, claim_choice, keep_choice, release_choice
from backend.store.ingest import IngestWriter
from backend.store.jobs.reader import list_current
from backend.store.postgres.connections import reading, writing
from backend.store.schema.choice_tables import choice_claims
from backend.store.targets.targets import NewTarget, TargetRepository
from tests.simulators.regret_jobs import Drawn
from tests.support.advised_jobs import EXACTLY_ONCE, readings, slow_run
from tests.support.chosen_jobs import QUICK, outcome
from tests.support.failing_jobs import failing_job
from tests.support.handwritten_jobs import START, chain
from tests.support.made_choices import made_choice
from tests.support.observations import job as observed_job
from tests.support.observations import observation
from tests.support.twin_evidence import runtime_evidence

pytestmark = pytest.mark.anyio
CONFIG = replace(EXACTLY_ONCE, interval_ms=10_000, timeout_ms=60_000)
CLUSTER = (("taskmanager.memory.segment-size", "16 kb"),)
READINGS = tuple(readings())
NOT_COMPARED = "the fast simulation has not compared any settings for this job yet"
FAILURES = tuple((START - timedelta(hours=n), f"lost {n}") for n in range(5, 0, -1))


class Choosing:
    """Chooses an aligned timeout for each job, and counts."""

    def __init__(self) -> None:
        self.count = 0
        self.why_not: str | None = None
        self.error: Exception | None = None
        self.intervals_ms: list[int] = []
        self.cluster_settings = None
        self.series = None

    def __call__(self, known):
        self.count += 1
        self.intervals_ms.append(known.evidence.config.interval_ms)
        self.cluster_settings = known.evidence.cluster_settings
        self.series = known.series
        if self.error is not None:
            raise self.error
        return made_choice(known) if self.why_not is None else refused(known, self.why_not)


@pytest.fixture
async def report(engine, clock):
    clock.at = START + timedelta(seconds=62)
    added = await TargetRepository(engine).add(
        NewTarget(url="http://127.0.0.1:18051", name="one", origin=TargetOrigin.API), at=START
    )
    writer = IngestWriter(engine, clock=clock)

    async def write(config=CONFIG, count=8, exceptions=FAILURES, at_s=62, others=(), pressure=READINGS, **changes):
        clock.at = START + timedelta(seconds=at_s)
        seen = replace(
            observed_job(slow_run(count)),
            topology=chain(),
            placements=(),
            config=config,
            cluster_settings=CLUSTER,
            counts=None,
            pressure=tuple(pressure),
            started_at=START - timedelta(hours=9),
            exceptions=exceptions,
            restart_count=len(exceptions),
        )
        seen = replace(seen, **changes)
        more = [replace(seen, name=run, engine_run_id=run * 32, config=other) for run, other in others]
        await writer.write(observation(added.id, seen, *more, at=clock.at))

    return write


@pytest.fixture
def parts(engine, clock):
    evidence = EvidenceReader(clock)
    jobs = AnalysedJobs(clock, evidence)
    choosing = Choosing()
    return choosing, SettingChooser(engine, clock, evidence, jobs, QuickTiers(is_ready=True), choosing)


async def advice_of(engine, clock):
    """Return the advice as a new process reads it."""
    async with reading(engine) as connection:
        (record,) = await list_current(connection)
    service = AdviceService(engine, clock, EvidenceReader(clock), ANYWHERE, change=None)
    return await service.of_job(record.id)


async def test_the_next_finding_of_every_process_uses_the_choice_that_one_process_made(engine, clock, report, parts):
    choosing, chooser = parts
    await report()
    before = await advice_of(engine, clock)
    assert await chooser.choose_next() > 0
    await report(count=9, at_s=100)
    after = await advice_of(engine, clock)

    assert before.chosen_by.tier is None
    assert "has not compared" in before.chosen_by.text
    waiting = [s.reason for s in before.silences if s.topic is Topic.INTERVAL]
    assert waiting == [f"the interval is not chosen by what it loses, because {NOT_COMPARED}"]
    assert after.chosen_by.tier == "fast"
    (card,) = (c for c in after.cards if c.recommendation.topic is Topic.MODE)
    assert card.recommendation.chosen_by == "fast"
    assert choosing.count == 1
    assert choosing.cluster_settings == CLUSTER


async def test_the_analysis_for_a_choice_keeps_no_request_waiting(engine, clock, report, parts, monkeypatch):
    choosing, chooser = parts
    await report()
    threads = []

    def noted(*args, **more):
        threads.append(threading.get_ident())
        return situation(*args, **more)

    monkeypatch.setattr("backend.services.whatif.choosing.situation", noted)
    assert await chooser.choose_next() > 0

    assert choosing.count == 1
    assert len(threads) == 1
    assert threading.get_ident() not in threads


async def test_a_choice_is_made_once_until_it_is_due(engine, clock, report, parts):
    choosing, chooser = parts
    await report()
    await chooser.choose_next()
    await report(count=15, at_s=130)
    assert await chooser.choose_next() == 0

    other = replace(CONFIG, interval_ms=20_000)
    await report(other, count=15, at_s=140)
    await report(other, count=25, at_s=300)
    assert await chooser.choose_next() > 0
    assert choosing.count == 2


@pytest.mark.parametrize("changes", [{}, {"engine_run_id": "f" * 32, "started_at": START - timedelta(hours=1)}])
async def test_a_choice_knows_the_limit_before_the_first_of_those_that_were_followed(report, parts, changes):
    """The settings change while the job runs, or the job starts again with them."""
    choosing, chooser = parts
    await report()
    assert await chooser.choose_next() > 0
    assert choosing.series is None

    followed = replace(CONFIG, is_unaligned_enabled=True, aligned_timeout_ms=300)
    await report(followed, count=15, at_s=140, **changes)
    await report(followed, count=25, at_s=300, **changes)
    assert await chooser.choose_next() > 0

    assert choosing.count == 2
    assert choosing.series.limit_bytes == 1e6


async def test_the_rules_say_why_the_simulation_did_not_choose(engine, clock, report, parts):
    choosing, chooser = parts
    choosing.why_not = "it has 9000 channels, and the fast simulation takes 8192"
    await report()
    await chooser.choose_next()
    await report(count=9, at_s=100)

    assert choosing.why_not in (await advice_of(engine, clock)).chosen_by.text


async def test_the_cards_of_a_job_whose_failures_are_not_known_are_answered_too(engine, clock, report):
    answer = replace(outcome(QUICK), records_per_s=Interval(900.0, 800.0, 1_000.0))

    def simulate(known):
        return answered(known, refused(known, "the failures are not known"), lambda _: answer)

    evidence = EvidenceReader(clock)
    chooser = SettingChooser(
        engine, clock, evidence, AnalysedJobs(clock, evidence), QuickTiers(is_ready=True), simulate
    )

    async def cards():
        return [c.recommendation for c in (await advice_of(engine, clock)).cards]

    await report(exceptions=())
    (before,) = await cards()
    assert await chooser.choose_next() > 0
    await report(exceptions=(), count=9, at_s=130)
    (card,) = await cards()

    assert (before.topic, before.predicted_by, card.predicted_by) == (Topic.PARALLELISM, None, "fast")
    predicted = next(e.predicted for e in card.expected if e.metric is Metric.DURATION)
    assert (predicted.value, predicted.low, predicted.high) == (QUICK.value, QUICK.low, QUICK.high)
    assert await chooser.choose_next() == 0


async def test_nothing_is_chosen_before_the_simulation_is_ready(engine, clock, report, parts):
    choosing, _ = parts
    await report()
    evidence = EvidenceReader(clock)
    unready = SettingChooser(engine, clock, evidence, AnalysedJobs(clock, evidence), QuickTiers(), choosing)
    assert await unready.choose_next() == 0
    assert choosing.count == 0


async def test_a_process_that_could_not_compile_lets_the_rules_choose_until_another_one_simulates(
    engine, clock, report, parts
):
    choosing, chooser = parts
    await report()
    evidence = EvidenceReader(clock)
    tiers = QuickTiers()
    tiers.begin()
    failed = SettingChooser(engine, clock, evidence, AnalysedJobs(clock, evidence), tiers, choosing)
    assert await failed.choose_next() == 0
    tiers.finish("no compiler")
    assert await failed.choose_next() > 0
    await report(count=9, at_s=100)
    refused_text = (await advice_of(engine, clock)).chosen_by.text
    await report(count=9, at_s=1_000)
    assert await failed.choose_next() > 0
    assert await chooser.choose_next() > 0
    await report(count=10, at_s=1_100)
    after = await advice_of(engine, clock)

    assert "could not be compiled (no compiler)" in refused_text
    assert "only the simulation" not in refused_text
    assert choosing.count == 1
    assert after.chosen_by.tier == "fast"


async def test_an_unexpected_error_is_kept_as_a_refusal(engine, clock, report, parts):
    choosing, chooser = parts
    choosing.error = ZeroDivisionError("float division by zero")
    await report()
    assert await chooser.choose_next() > 0
    await report(count=9, at_s=500)

    assert await chooser.choose_next() == 0
    assert "an unexpected error ended the fast simulation" in (await advice_of(engine, clock)).chosen_by.text
    assert choosing.count == 1


async def test_jobs_that_were_never_tried_come_first_and_then_the_one_tried_longest_ago(clock, report, parts):
    choosing, chooser = parts
    choosing.why_not = "it has 9000 channels, and the fast simulation takes 8192"
    await report()
    await chooser.choose_next()
    others = [(run, replace(CONFIG, interval_ms=ms)) for run, ms in (("b", 20_000), ("c", 30_000))]
    # Refusals are due again by then.
    for at_s in (700, 702, 704):
        await report(count=9, at_s=at_s, others=others)
        assert await chooser.choose_next() > 0

    assert (choosing.intervals_ms[0], set(choosing.intervals_ms[1:3])) == (10_000, {20_000, 30_000})
    assert choosing.intervals_ms[3:] == [10_000]
    await report(count=10, at_s=1400, others=others)
    assert await chooser.choose_next() > 0
    assert choosing.intervals_ms[4] == choosing.intervals_ms[1]


async def test_of_two_processes_one_chooses_for_a_job(engine, report, parts):
    choosing, chooser = parts
    await report()
    async with reading(engine) as connection:
        (record,) = await list_current(connection)
    async with writing(engine) as other:
        assert await claim_choice(other, record.run.id, "other", claimed_s=60)
    assert await chooser.choose_next() == 0
    assert choosing.count == 0
    async with writing(engine) as other:
        assert not await release_choice(other, record.run.id, "no holder")
        assert await release_choice(other, record.run.id, "other")
    assert await chooser.choose_next() > 0
    assert choosing.count == 1


async def test_the_claim_of_a_process_that_ended_without_a_word_expires(engine):
    async with writing(engine) as connection:
        assert await claim_choice(connection, "r1", "gone", claimed_s=-1)
    async with writing(engine) as connection:
        assert await claim_choice(connection, "r1", "next", claimed_s=60)
        assert not await claim_choice(connection, "r1", "third", claimed_s=60)


async def test_no_connection_is_held_while_the_simulation_chooses(engine, clock, report):
    held = []

    def look(known):
        held.append(engine.pool.checkedout())
        return made_choice(known)

    await report()
    evidence = EvidenceReader(clock)
    chooser = SettingChooser(engine, clock, evidence, AnalysedJobs(clock, evidence), QuickTiers(is_ready=True), look)
    assert await chooser.choose_next() > 0

    assert held == [0]


async def test_after_a_choice_and_after_an_error_no_claim_is_left(engine, clock, report, parts, monkeypatch):
    _, chooser = parts
    await report()

    async def fail(*_, **__):
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(EvidenceReader, "of_finding", fail)
        with pytest.raises(ZeroDivisionError):
            await chooser.choose_next()
    async with reading(engine) as connection:
        assert (await connection.execute(choice_claims.select())).all() == []
    clock.at += timedelta(seconds=400)
    await report(count=9, at_s=500)
    assert await chooser.choose_next() > 0
    async with reading(engine) as connection:
        assert (await connection.execute(choice_claims.select())).all() == []


async def test_a_choice_whose_claim_was_lost_is_not_stored(engine, clock, report):
    await report()
    async with reading(engine) as connection:
        (record,) = await list_current(connection)

    async def lose():
        async with writing(engine) as connection:
            await connection.execute(choice_claims.update().values(holder="other"))

    def slow(known):
        anyio.from_thread.run(lose)
        return made_choice(known)

    evidence = EvidenceReader(clock)
    chooser = SettingChooser(engine, clock, evidence, AnalysedJobs(clock, evidence), QuickTiers(is_ready=True), slow)
    await chooser.choose_next()

    async with reading(engine) as connection:
        assert await choices_of(connection, [record.run.id]) == {}


async def test_the_choice_rests_on_the_verdict_of_the_finding_and_the_model_on_a_longer_time(engine, clock, report):
    seen = []

    def look(known):
        seen.append(known)
        return made_choice(known)

    # 200 s between the two groups of readings: too long for a finding, and not for a model.
    newer = tuple(replace(r, observed_at=r.observed_at + timedelta(seconds=200)) for r in READINGS)
    await report()
    await report(count=28, at_s=262, pressure=newer)
    evidence = EvidenceReader(clock)
    chooser = SettingChooser(engine, clock, evidence, AnalysedJobs(clock, evidence), QuickTiers(is_ready=True), look)
    await chooser.choose_next()
    async with reading(engine) as connection:
        (case,) = await EvidenceReader(clock).cases(connection, await list_current(connection))

    (known,) = seen
    assert known.diagnosis.verdict == case.finding.diagnosis.verdict
    assert [r.observed_at for r in known.evidence.pressure] == [r.observed_at for r in newer]
    assert [r.observed_at for r in known.modelled.pressure] == [r.observed_at for r in (*READINGS, *newer)]


async def test_a_stop_does_not_wait_for_the_simulation(engine, clock, report):
    began, release, ended = threading.Event(), threading.Event(), []

    def wait(known):
        began.set()
        # Without the release, a stop that waits for this thread would hang.
        ended.append(release.wait(10))
        return refused(known, None)

    await report()
    evidence = EvidenceReader(clock)
    chooser = SettingChooser(engine, clock, evidence, AnalysedJobs(clock, evidence), QuickTiers(is_ready=True), wait)
    async with anyio.create_task_group() as group:
        group.start_soon(chooser.run)
        await anyio.to_thread.run_sync(began.wait)
        group.cancel_scope.cancel()
    has_waited = bool(ended)
    release.set()
    assert not has_waited


async def test_a_new_choice_replaces_the_earlier_one_if_a_clock_was_set_back(engine):
    async with writing(engine) as connection:
        await keep_choice(connection, "r1", START, {"n": 1})
        await keep_choice(connection, "r1", START - timedelta(hours=1), {"n": 2})
        assert await choices_of(connection, ["r1"]) == {"r1": {"n": 2}}


@pytest.mark.slow
async def test_the_fast_simulation_chooses_from_what_a_collector_stored(engine, clock):
    """The whole way with the real simulation, which is compiled if no earlier run left its code."""
    job = Drawn.of("light/1")
    found = await anyio.to_thread.run_sync(partial(runtime_evidence, job.spec(job.now.config(), seed=1), run_s=120))
    clock.at = found.now
    added = await TargetRepository(engine).add(
        NewTarget(url="http://127.0.0.1:18051", name="one", origin=TargetOrigin.API), at=clock.at
    )
    told = replace(observation(added.id, failing_job(found), at=clock.at), engine=RUNTIME, engine_version="0.1.0")
    await IngestWriter(engine, clock=clock).write(told)
    evidence = EvidenceReader(clock)
    chooser = SettingChooser(engine, clock, evidence, AnalysedJobs(clock, evidence), QuickTiers(is_ready=True))
    assert await chooser.choose_next() > 0
    clock.at += timedelta(seconds=90)
    answer = await advice_of(engine, clock)

    assert answer.chosen_by.tier == "fast", answer.chosen_by
    (card,) = (c.recommendation for c in answer.cards if c.recommendation.chosen_by == "fast")
    lost = next(e for e in card.expected if e.metric is Metric.LOST)
    assert lost.predicted.value < lost.before
