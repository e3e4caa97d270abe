"""Goal: whatever JSON a target sends, a poll gives an observation with bounded values or raises a clear error.

Method: in some of the recorded responses, one node is deleted or replaced by a value of another type, size or
sign. A poll must then give an observation that the store can write, or raise ``UpstreamError``. To replay one
run: pytest tests/contract/test_flink_hostile_json.py -k "seed-17"
"""

from __future__ import annotations

import random
from typing import Any

import orjson
import pytest

from backend.domain.errors import UpstreamError
from backend.domain.ids import TargetId
from backend.domain.observation import Observation
from backend.domain.target import TargetOrigin
from backend.store.ingest import IngestWriter
from backend.store.postgres.connections import create_store_engine
from backend.store.targets.targets import NewTarget, TargetRepository
from collectors.flink.collector import FlinkCollector
from tests.support.observations import SteppingClock
from tests.support.recorded_flink import NAMES, RECORDINGS, RecordedFlink
from tests.support.seeds import over_seeds

pytestmark = pytest.mark.anyio

SEEDS = 150
ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    1,
    2**31,
    2**53,
    2**63 - 1,
    -(2**63),
    2**64 - 1,
    1e308,
    -0.5,
    "",
    "NaN",
    "-1",
    "../../etc/passwd",
    "a\x00b\u202e\ud7ff",
    "x" * 100_000,
    "<script>alert(1)</script>",
    [],
    {},
    [None],
    [[]],
    {"a": 1},
    [{}] * 50,
]


def nodes(value: Any) -> list[tuple[Any, Any]]:
    """Return every (container, key) pair in ``value``, at any depth."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        container = waiting.pop()
        keys: list[Any] = []
        if isinstance(container, dict):
            keys = list(container)
        elif isinstance(container, list):
            keys = list(range(len(container)))
        for key in keys:
            found.append((container, key))
            waiting.append(container[key])
    return found


class Hostile:
    """A recorded Flink that changes one node in some of its responses, chosen at random."""

    def __init__(self, flink: RecordedFlink, rnd: random.Random, rate: float) -> None:
        self._flink = flink
        self._rnd = rnd
        self._rate = rate
        self.url = flink.url
        self.asked: list[str] = []
        self.lied: list[str] = []

    async def get(self, path: str) -> bytes:
        self.asked.append(path)
        body = await self._flink.get(path)
        if self._rnd.random() > self._rate:
            return body
        answer = [orjson.loads(body)]
        container, key = self._rnd.choice(nodes(answer))
        if isinstance(container, dict) and self._rnd.random() < 0.2:
            del container[key]
            self.lied.append(f"{path}: without {key}")
        else:
            container[key] = self._rnd.choice(ODD)
            self.lied.append(f"{path}: {key} = {str(container[key])[:40]!r}")
        return orjson.dumps(answer[0])


@over_seeds(SEEDS // 3, more=SEEDS)
async def test_a_changed_answer_gives_a_reading_or_a_clear_error(seed: int) -> None:
    rnd = random.Random(seed)
    flink = RecordedFlink(RECORDINGS / rnd.choice(NAMES))
    hostile = Hostile(flink, rnd, rate=rnd.choice([0.2, 0.5, 1.0]))
    collector = FlinkCollector(hostile, target_id=TargetId("t"), monotonic_s=flink.monotonic_s)
    flink.at_s = flink.recording.begins_s
    for _ in range(12):
        where = f"seed={seed} {hostile.lied[-5:]}"
        reading = await poll(collector, flink)
        if isinstance(reading, Observation):
            check(reading, where)
        else:
            assert len(str(reading)) < 1000, where
            assert str(reading).isprintable(), where
        flink.at_s += rnd.choice([1.0, 2.0, 5.0])
    assert hostile.lied, f"seed={seed}"
    for path in hostile.asked:
        assert path.isascii(), f"seed={seed}"
        assert ".." not in path, f"seed={seed}"
        assert len(path) < 4096, f"seed={seed}"
    # The number of requests is bounded, whatever the target answers.
    assert len(hostile.asked) < 12 * 450, f"seed={seed}"


async def poll(collector: FlinkCollector, flink: RecordedFlink) -> Observation | UpstreamError:
    try:
        return await collector.collect(flink.now)
    except UpstreamError as error:
        return error


def check(observation: Observation, where: str) -> None:
    for job in observation.jobs:
        assert len(job.name) <= 500, where
        assert all(len(problem) < 1000 for problem in job.problems), where
        for checkpoint in job.checkpoints:
            header = checkpoint.header
            assert header.checkpoint_id >= 0, where
            assert header.triggered_at.tzinfo is not None, where
            for detail in checkpoint.details:
                values = detail.start_delay_ms + detail.alignment_duration_ms + detail.ack_delay_ms
                assert all(v is None or 0 <= v < 2**31 for v in values), where
        for reading in job.pressure:
            assert all(r is None or 0 <= r <= 1 for r in reading.busy_ratio), where


async def test_the_store_accepts_readings_of_hostile_targets_and_stores_the_next_target_whole(
    database: str,
) -> None:
    engine = create_store_engine(database)
    try:
        flink = RecordedFlink(RECORDINGS / "B2")
        writer = IngestWriter(engine, clock=SteppingClock(flink.now))
        repository = TargetRepository(engine)
        written = 0
        for seed in range(40):
            rnd = random.Random(seed)
            new = NewTarget(url=f"http://liar-{seed}:8081", name="liar", origin=TargetOrigin.API)
            target = await repository.add(new, at=flink.now)
            flink = RecordedFlink(RECORDINGS / rnd.choice(NAMES))
            hostile = Hostile(flink, rnd, rate=rnd.choice([0.02, 0.1]))
            collector = FlinkCollector(hostile, target_id=target.id, monotonic_s=flink.monotonic_s)
            flink.at_s = flink.recording.begins_s
            for _ in range(8):
                reading = await poll(collector, flink)
                if isinstance(reading, Observation):
                    await writer.write(reading)
                    written += 1
                flink.at_s += 6.0
        assert written > 150
        honest = await repository.add(
            NewTarget(url="http://honest:8081", name="honest", origin=TargetOrigin.API), at=flink.now
        )
        flink = RecordedFlink(RECORDINGS / "B2", at_s=40.0)
        reading = await poll(FlinkCollector(flink, target_id=honest.id, monotonic_s=flink.monotonic_s), flink)
        assert isinstance(reading, Observation)
        result = await writer.write(reading)
        assert result.new_count == len(reading.jobs[0].checkpoints) >= 7
        assert result.detail_count == 3 * sum(c.header.status.is_terminal for c in reading.jobs[0].checkpoints)
    finally:
        await engine.dispose()
