"""Tests of acknowledgements that are larger than a message may be, beside snapshots that do not reach the store."""

from __future__ import annotations

import random

import pytest

from backend.analysis.verdict.verdict import diagnose
from backend.domain.verdict import Confidence, Phase, VerdictKind
from tests.support.handwritten_jobs import LAST, MIDDLE, SOURCE, chain, completed, detail, failed, job, reading

SMALL = {"pekko.framesize": "400000b"}
WIDTH = 2


def expired(number, pending=(0, 1)):
    rows = (
        detail(v, first=[None if v is MIDDLE and i in pending else 5 for i in range(WIDTH)])
        for v in (SOURCE, MIDDLE, LAST)
    )
    return failed(number, *rows, after_ms=10_000, every_s=8)


def judged(settings, *, wrote=None, pending=(0, 1)):
    """Return the verdict on a job of which ``middle`` never acknowledges and reads on, with settings of its cluster.

    ``wrote`` has the bytes that its subtasks acknowledged in an earlier checkpoint that completed.
    """
    first = [] if wrote is None else [completed(1, *(detail(v, first=[5] * WIDTH, size_bytes=wrote) for v in chain_()))]
    run = [*first, *(expired(n, pending) for n in (2, 3, 4))]
    readings = [reading(v, [0.1] * WIDTH, records=[90 * at] * WIDTH, at_s=at) for at in (40, 50, 60) for v in chain_()]
    cluster = None if settings is None else tuple(sorted(settings.items()))
    return diagnose(job(run, readings, topology=chain(parallelism=WIDTH), cluster_settings=cluster)).verdict


def chain_():
    return SOURCE, MIDDLE, LAST


@pytest.mark.parametrize("key", ["pekko.framesize", "akka.framesize"])
def test_an_acknowledgement_that_may_be_too_large_for_a_small_message_is_of_the_coordinator(key):
    """Goal: a person reads the log of the JobManager and raises the limit, and does not look for a slow store."""
    found = judged({key: "400000b"})

    assert (found.kind, found.vertex, found.subtasks) == (VerdictKind.COORDINATOR, MIDDLE, (0, 1))
    assert (found.phase, found.confidence) == (Phase.ACK_WAIT, Confidence.LOW)
    assert "more state than a message may have (400 kB)" in found.sentence
    assert any(key in row.statement and row.value == 400_000 for row in found.evidence)
    assert "above the limit in the logs" in found.would_decide[0]


def test_one_subtask_is_named_alone():
    found = judged(SMALL, pending=(1,))

    assert (found.kind, found.subtasks) == (VerdictKind.COORDINATOR, (1,))
    assert "middle subtask 1 did not acknowledge: its acknowledgement holds" in found.sentence


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(None, id="not known"),
        pytest.param({}, id="defaults"),
        pytest.param({"pekko.framesize": "10485760b"}, id="the default, set"),
        pytest.param({"pekko.framesize": "64mb"}, id="a larger message"),
        pytest.param({"pekko.framesize": "small"}, id="not a size"),
        pytest.param({"state.storage.fs.memory-threshold": "100kb"}, id="few pieces of state below the threshold"),
        pytest.param(
            {"pekko.framesize": "64mb", "execution.checkpointing.data-inline-threshold": "1mb"},
            id="a larger message for larger pieces",
        ),
    ],
)
def test_a_message_that_is_large_enough_leaves_the_store(settings):
    assert judged(settings).kind is VerdictKind.STORE


@pytest.mark.parametrize(
    "key",
    [
        "execution.checkpointing.data-inline-threshold",
        "state.storage.fs.memory-threshold",
        "state.backend.fs.memory-threshold",
    ],
)
def test_large_pieces_of_state_in_the_acknowledgement_do_not_fit_a_message_of_the_default_size(key):
    found = judged({key: "1mb"})

    assert found.kind is VerdictKind.COORDINATOR
    assert "more state than a message may have (10.5 MB)" in found.sentence
    assert any("each piece of state below 1.0 MB" in row.statement for row in found.evidence)


def test_a_subtask_that_once_acknowledged_more_than_a_message_may_have_writes_to_the_store():
    assert judged(SMALL, wrote=390_000).kind is VerdictKind.COORDINATOR
    assert judged(SMALL, wrote=410_000).kind is VerdictKind.STORE


@pytest.mark.parametrize("seed", range(5))
def test_drawn_limits_below_the_default_are_of_the_coordinator_and_others_of_the_store(seed):
    rnd = random.Random(seed)
    limit_kib = rnd.choice([rnd.randint(10, 10_239), rnd.randint(10_240, 100_000)])
    found = judged({rnd.choice(["pekko.framesize", "akka.framesize"]): f"{limit_kib} kb"}, pending=(rnd.randint(0, 1),))

    assert (found.kind is VerdictKind.COORDINATOR) is (limit_kib < 10_240), f"seed {seed}"
