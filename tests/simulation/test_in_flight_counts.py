"""Goal: the in-flight bytes of a capped checkpoint are exact, and checking them costs little (CAP-1, CAP-3).

Method: each seed chooses a job, a cap and what happens at the cap. Wherever a run uses the count of a channel, the test
compares it with the data itself. Each job also runs with every step as an event, so that the cap is checked after each
record, and nothing observable may differ. To replay one run: ``drawn_capped(17)``.
"""

from __future__ import annotations

from collections import Counter

import pytest

from backend.runtime.core.prng import Stream
from backend.runtime.engine.jobfile import JobSpec, load_job_document
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.network.buffers import DataBuffer
from backend.runtime.network.channel import ByteDecoder, InputChannel
from backend.runtime.network.remote_channel import RemoteChannel
from backend.runtime.network.spans import SpanDecoder
from backend.runtime.protocols.capped import Capped
from backend.runtime.protocols.gatekeeper import Gatekeeper
from backend.runtime.protocols.last_barrier import LastBarrier
from backend.runtime.task.capping import Capping
from backend.runtime.task.checkpointing import TaskCheckpointing
from backend.runtime.task.task import Task
from tests.support.observed_runs import observed
from tests.support.runtime_jobs import late_triggers, small_job

_DRAIN: dict[str, object] = {
    "runtime.inflight-cap.bytes": "unlimited",
    "runtime.unaligned.starts-with": "last-barrier",
    "runtime.unaligned.front-input": "drain",
}


def drawn_capped(seed: int) -> JobSpec:
    """Return the job that the seed determines."""
    draws = Stream(seed, "in-flight counts")
    record_bytes = (60, 120, 700)[draws.below(3)]
    segment_bytes = (512, 2048, 8192)[draws.below(3)]
    config: dict[str, object] = {
        "taskmanager.memory.segment-size": segment_bytes,
        # Multiples of a record, so that the data sometimes equals the cap exactly.
        "runtime.inflight-cap.bytes": record_bytes * (1, 5, 20, 60, 200)[draws.below(5)],
        "runtime.inflight-cap.on-cap": ("wait", "wait", "partial", "decline")[draws.below(4)],
        "execution.checkpointing.interval": "60 ms",
        "execution.checkpointing.timeout": ("150 ms", "2 s")[draws.below(2)],
        "execution.checkpointing.tolerable-failed-checkpoints": "unlimited",
        "runtime.cost.link-latency": ("10 us", "2 ms")[draws.below(2)],
    }
    return small_job(
        "capped",
        seed=seed,
        task_managers=1 + draws.below(3),
        record_bytes=record_bytes,
        parallelism=2 + draws.below(3),
        records=(None, 400)[draws.below(2)],
        plan=tuple(late_triggers()) if draws.below(2) else (),
        config=config | (_DRAIN if draws.below(6) == 0 else {}),
        mapped={"cost_us": (100, 400)[draws.below(2)]},
        keyed={"cost_us": (200, 1000, 2000)[draws.below(3)]},
    )


def drawn_ending(seed: int) -> JobSpec:
    """Return a job whose sources end one after the other, while the sink still has much queued input."""
    draws = Stream(seed, "in-flight counts of ending jobs")
    config: dict[str, object] = {
        "execution.checkpointing.unaligned.enabled": True,
        "execution.checkpointing.interval": "40 ms",
        "execution.checkpointing.tolerable-failed-checkpoints": "unlimited",
        "runtime.finish-protocol": ("revised", "legacy")[draws.below(2)],
        "runtime.inflight-cap.bytes": 60 * (1, 10, 40)[draws.below(3)],
        "taskmanager.memory.segment-size": (512, 2048)[draws.below(2)],
        "runtime.task-managers": 1 + draws.below(3),
    }
    source = {"kind": "source", "cost_us": 100, "record_bytes": 60, "parallelism": 2}
    limits = [20 + draws.below(500) for _ in range(4)] + [3000]
    vertices: list[dict[str, object]] = [
        {"id": f"source-{n}", "limit": limit, **source} for n, limit in enumerate(limits)
    ]
    edges = [{"from": vertex["id"], "to": "sink", "partitioner": "hash"} for vertex in vertices]
    vertices.append({"id": "sink", "kind": "keyed+sink", "cost_us": (100, 400)[draws.below(2)], "parallelism": 2})
    return load_job_document({"name": "ending", "seed": seed, "config": config, "vertex": vertices, "edge": edges})


def _front(channel: InputChannel, checkpoint_id: int) -> int:
    """Return the size of the data in front of the cut, from the data itself."""
    decoder = channel._decoder
    size = sum(element.size_bytes for element in channel.elements)
    if isinstance(decoder, SpanDecoder):
        size += decoder._begun_bytes
    else:
        assert isinstance(decoder, ByteDecoder)
        size += len(decoder._data) - decoder._whole
    if isinstance(channel, RemoteChannel):
        arrived_id, arrived_at = channel._barrier_arrivals
        limit = arrived_at if arrived_id == checkpoint_id else channel._arrivals + 1
        size += sum(len(item.data) for at, item in channel._queue if at < limit and isinstance(item, DataBuffer))
    return size


@pytest.mark.parametrize("is_size_only", [False, True])
def test_the_counted_bytes_are_those_of_the_data(is_size_only: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Capping.input_bytes
    seen = Counter[str]()

    def checked(capping: Capping) -> int:
        k, size = capping._current_id(), counted(capping)
        channels = capping._task.gate.channels
        for of in (k, k + 1):
            assert [channel.front_bytes(of) for channel in channels] == [_front(channel, of) for channel in channels]
        assert size == sum(_front(channel, k) for channel in channels)
        for output in capping._task.outputs:
            queued = sum(len(i.data) for s in output.pool.subpartitions for i in s.queue if isinstance(i, DataBuffer))
            assert output.queued_bytes == queued + sum(s._filled for s in output.pool.subpartitions)
        seen["in front"] += size > 0
        seen["behind"] += any(c.is_remote and c.queued[1] + len(c.unconsumed) > c.front_bytes(k) for c in channels)
        return size

    monkeypatch.setattr(Capping, "input_bytes", checked)
    for seed in range(12):
        JobEngine(drawn_capped(seed), is_size_only=is_size_only).run_until(500_000)
    assert min(seen["in front"], seen["behind"]) > 100, seen


def test_a_task_checks_after_each_record_exactly_if_no_barrier_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Counter[tuple[bool, bool]]()
    step = Task._step

    def checked(task: Task, epoch: int) -> int | None:
        after_us = step(task, epoch)
        checkpointing, keeper = task.checkpointing, task.checkpointing._known_keeper
        if checkpointing.is_waiting_for_room and not task.is_dead:
            assert isinstance(keeper, Gatekeeper)
            protocol = keeper._current
            assert isinstance(protocol, Capped | LastBarrier)
            is_due = protocol._open <= protocol._arrived
            assert checkpointing.is_watching == is_due, f"{task.name} at {task.env.now} us"
            seen[is_due, any(channel.is_ended for channel in task.gate.channels)] += 1
        return after_us

    monkeypatch.setattr(Task, "_step", checked)
    for seed in range(10, 26):
        for spec in (drawn_capped(seed), drawn_ending(seed)):
            JobEngine(spec).run_until(700_000)
    assert len(seen) == 4, seen


def _compare(spec: JobSpec, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        # With this, every task checks a waiting checkpoint after each record, whatever barriers are missing.
        patch.setattr(TaskCheckpointing, "_has_every_barrier", lambda _: True)
        stepwise = observed(spec, is_size_only=seed % 2 == 1, is_stepwise=True)
    ahead = observed(spec, is_size_only=seed % 2 == 1, looks=True)
    for what, seen in stepwise.items():
        assert ahead[what] == seen, f"{what}, seed {seed}"


@pytest.mark.parametrize("seed", range(12))
def test_a_cap_that_is_not_checked_after_each_record_is_met_at_the_same_moment(seed: int) -> None:
    _compare(drawn_capped(seed), seed)


@pytest.mark.parametrize("seed", range(12))
def test_a_cap_is_met_at_the_same_moment_while_channels_end(seed: int) -> None:
    _compare(drawn_ending(seed), seed)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_a_cap_is_met_at_the_same_moment_over_many_jobs(part: int) -> None:
    for seed in range(12 + part, 92, 4):
        _compare(drawn_capped(seed), seed)


def test_most_steps_of_a_checkpoint_that_waits_are_not_events(monkeypatch: pytest.MonkeyPatch) -> None:
    config: dict[str, object] = {
        "execution.checkpointing.unaligned.enabled": True,
        "execution.checkpointing.interval": "100 ms",
        "runtime.inflight-cap.bytes": "1 kb",
        "taskmanager.memory.segment-size": 8192,
        "runtime.task-managers": 2,
    }
    common = {"parallelism": 2, "record_bytes": 60}
    vertices = [
        {"id": "source", "kind": "source", "cost_us": 20, **common},
        {"id": "sink", "kind": "sink", "cost_us": 400, **common},
    ]
    edges = [{"from": "source", "to": "sink", "partitioner": "rebalance"}]
    spec = load_job_document({"name": "waiting", "seed": 1, "config": config, "vertex": vertices, "edge": edges})
    events = Counter[tuple[bool, bool]]()
    step = Task._step

    def counted(task: Task, epoch: int) -> int | None:
        checkpointing = task.checkpointing
        if checkpointing.is_waiting_for_room:
            events[task.env.is_stepwise, checkpointing.is_watching] += 1
        return step(task, epoch)

    monkeypatch.setattr(Task, "_step", counted)
    for is_stepwise in (True, False):
        JobEngine(spec, is_stepwise=is_stepwise).run_until(2_000_000)
    for is_watching in (True, False):
        assert events[True, is_watching] > 200, events
        assert events[False, is_watching] < events[True, is_watching] / 3, events
