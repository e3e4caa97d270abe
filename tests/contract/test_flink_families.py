"""``diagnose`` on recordings of a real Flink 1.20.5 and 2.3.0: each family of causes beside its nearest neighbours.

Each job of the recordings was built with one trouble, which is its name. All jobs of a version ran at the same time on
a cluster with Flink's defaults, except the one with a small message size and the one whose JobManager stood still.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import pytest

from tests.simulators.versions.watching import documents
from tests.support.recorded_versions import FOLDER as VERSIONS
from tests.support.recorded_versions import diagnosed, recorded

FOLDER = VERSIONS.with_name("recordings_families")
WORK, SINK, SOURCE = "enrich", "deliver -> sink: Writer", "Source: orders"
SURE = ("low", "medium", "high")
QUEUES = ("Enable unaligned", "Run .* with .* subtasks")


@dataclass(frozen=True)
class Expected:
    """What must be said of a job: the kind, the vertex, words of the answer, and what must not be said or advised."""

    kind: str
    vertex: str | None = None
    says: str = ""
    never: str = "key skew|straggler|at capacity"
    may_advise: tuple[str, ...] = ("Keep 2 checkpoints", "Raise the checkpoint interval")
    sure_at_most: str = "high"


CAPACITY = Expected("capacity", SINK, "at capacity", "in a long callback|sync part of", ("Raise the", *QUEUES))
JOBS = {
    # One piece of work, and what it must not be taken for.
    "record of 15 s": Expected("long-callback", WORK, r"about 15\.0 s with each record"),
    "record of 8 s everywhere": Expected("long-callback", SINK, "with each record, and no barrier gets through"),
    "record of 6 s in a queue": Expected("long-callback", SINK, r"about \d\.\d s with each record"),
    "work of 12 s after completion": Expected("outside-commit", SINK, r"about 12\.0 s after each completed checkpoint"),
    "work of 8 s after completion": Expected("outside-commit", SINK, r"about 8\.0 s after each completed checkpoint"),
    "old source holds its lock": Expected("late-input", SOURCE, "the delay is in the source"),
    "source works 12 s on a split": Expected("late-input", SOURCE, "the delay is in the source"),
    "capacity": CAPACITY,
    "sync part of 20 s": Expected("sync", WORK, r"the sync part of enrich subtask 0 takes 20\.0 s"),
    "sync part of 15 s, keys skewed": Expected("sync", SINK, r"the sync part of deliver.* takes 15\.0 s"),
    "store takes 20 s": Expected("store", WORK, "did not acknowledge|no subtask of enrich acknowledged"),
    # Refused before it gets an id.
    "finished source, checkpoints after that off": Expected("refused", "Source: rates", "have finished"),
    "finished source": Expected("none", None, "healthy"),
    "task that never opens": Expected(
        "none", WORK, "enrich subtask 1 is still starting", "nothing holds the barrier|no reserve"
    ),
    # The coordinator.
    "enumerator that cannot be serialized": Expected("coordinator", None, "fails while it triggers them"),
    "enumerator serialized in 8 s": Expected("coordinator", None, "its trigger reaches every source only after"),
    "acknowledgement above the message size": Expected("store", WORK, r"pekko\.framesize"),
    "JobManager stands still": Expected("undecided", None, "the cause is not known", "key skew|the checkpoint store"),
    # The store, by how it fails.
    "quota": Expected("store", WORK, "the checkpoint store refuses what they write"),
    "throttled store": Expected("store", None, "the checkpoint store refuses what they write"),
    "store fails at one subtask": Expected("failing-subtask", WORK, "enrich subtask 0"),
    "disk full": Expected("store", WORK, "the checkpoint store refuses what they write"),
    # Growth, and transactions beside restarts for another reason.
    "union state that multiplies": Expected("restarts", None, "The state of enrich is .* as large after each restart"),
    "state never cleaned": Expected("none", None, "healthy", "after each restart"),
    "ended transactions": Expected("restarts", None, "the transaction was older than its timeout", "not the cause"),
    "ended transactions, a checkpoint broken off": Expected(
        "restarts", None, "the transaction was older than its timeout", "did not acknowledge"
    ),
    "exception of its own": Expected("restarts", None, "what its newest exception says decides", "transaction was"),
    # Settings that decide.
    "no failure tolerated": Expected(
        "undecided", WORK, "enrich subtask 0 sends no barrier on", "snapshots do not reach"
    ),
    "minimum pause above the interval": Expected("none", None, "so the pause decides", "slow"),
}
OF_VERSION = {
    # In half of the failures only one subtask has no room on the full disk, so it may be at fault: the error decides.
    ("2.3", "disk full"): Expected("failing-subtask", WORK, "a full disk", "key skew", sure_at_most="medium"),
}


@pytest.mark.anyio
@pytest.mark.parametrize(("version", "name"), list(recorded(FOLDER)))
async def test_the_cause_is_told_and_neither_its_neighbour_nor_a_vain_advice(version, name, anyio_backend):
    answer = await diagnosed(version, name, FOLDER)
    (said,) = documents(answer)
    verdict, advised = said["verdict"], [r["headline"] for r in said["advice"]["recommendations"]]
    expected = OF_VERSION.get((version, name), JOBS[name])
    text = json.dumps(said, ensure_ascii=False)

    assert (verdict["kind"], verdict["vertex"]) == (expected.kind, expected.vertex), verdict["sentence"]
    assert SURE.index(verdict["confidence"]) <= SURE.index(expected.sure_at_most), verdict["sentence"]
    assert re.search(expected.says, text), verdict["sentence"]
    assert not re.search(expected.never, verdict["sentence"]), verdict["sentence"]
    assert [a for a in advised if not re.match("|".join(expected.may_advise), a)] == []


@pytest.mark.parametrize("version", sorted({version for version, _ in recorded(FOLDER)}))
def test_a_recording_of_the_families_is_small(version):
    assert len((FOLDER / version / "rest.jsonl.gz").read_bytes()) < 300_000


def test_every_family_is_recorded():
    assert {name for version, name in recorded(FOLDER) if version == "1.20"} == set(JOBS)
