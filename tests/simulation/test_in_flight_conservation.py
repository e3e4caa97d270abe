"""Goal: per channel and checkpoint, what is persisted is exactly what lies between the two snapshots (INV-2, INV-3).

Method: every byte written to a channel is recorded. When a sender snapshots, so many bytes are *sent*; when the
receiver snapshots, so many are *done*. Then persisted input ++ persisted output must equal the bytes (done, sent], in
order; for aligned checkpoints nothing may lie between. Twenty seeds of drawn schedules and record sizes a protocol.
"""

from __future__ import annotations

from collections import defaultdict

import pytest

from backend.domain.barriers import BarrierEvent, BarrierEventKind
from backend.runtime.buffers import Subpartition
from backend.runtime.channel import ChannelKey
from backend.runtime.coordinator import Completed
from backend.runtime.graph import FaultSpec
from backend.runtime.kernel import Engine
from tests.support.runtime_jobs import late_triggers, small_job


class _Oracle:
    """Sees every byte on every channel, and each snapshot's place among them."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self._engine = engine
        self._streams: defaultdict[int, bytearray] = defaultdict(bytearray)
        self._sent: dict[tuple[int, ChannelKey], int] = {}
        self._done: dict[tuple[int, ChannelKey], int] = {}
        engine.env.log.listener = self._on_event
        append = Subpartition.append
        streams = self._streams

        def recorded(subpartition: Subpartition, data: bytes, at: int = 0) -> int:
            end = append(subpartition, data, at)
            streams[id(subpartition)] += data[at:end]
            return end

        monkeypatch.setattr(Subpartition, "append", recorded)

    def _on_event(self, checkpoint_id: int, event: BarrierEvent) -> None:
        if event.kind is not BarrierEventKind.SNAPSHOT_SYNC_START:
            return
        task = next(t for t in self._engine.tasks if t.spec.id == event.vertex_id and t.index == event.subtask)
        for output in task.outputs:
            for target, subpartition in zip(output.targets, output.pool.subpartitions, strict=True):
                key = ChannelKey(output.edge, task.index, target)
                self._sent[checkpoint_id, key] = len(self._streams[id(subpartition)])
        for channel in task.gate.channels:
            self._done[checkpoint_id, channel.key] = channel.bytes_received - len(channel.unconsumed)

    def check(self, completed: Completed) -> tuple[int, int]:
        """(channels checked, bytes persisted) of one completed checkpoint."""
        checked = persisted_bytes = 0
        by_key = {task.key: task for task in self._engine.tasks}
        inputs = {k: v for s in completed.snapshots.values() for k, v in s.channels.inputs.items()}
        outputs = {k: v for s in completed.snapshots.values() for k, v in s.channels.outputs.items()}
        for task in by_key.values():
            for channel in task.gate.channels:
                k = completed.record.id
                sent, done = self._sent[k, channel.key], self._done[k, channel.key]
                persisted = b"".join(inputs.get(channel.key, [])) + b"".join(outputs.get(channel.key, []))
                stream = self._streams[id(channel.subpartition)]
                assert done <= sent, f"checkpoint {k}, {channel.key}: received before it was sent"
                assert persisted == bytes(stream[done:sent]), (
                    f"checkpoint {k}, {channel.key}: {sent - done} bytes between"
                )
                checked += 1
                persisted_bytes += len(persisted)
        return checked, persisted_bytes


@pytest.mark.parametrize("protocol", ["aligned", "unaligned", "aligned-timeout", "capped"])
def test_persisted_bytes_are_those_between_the_snapshots(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    checked = persisted = 0
    for seed in range(20):
        with monkeypatch.context() as patch:
            size = (60, 120, 700, 1500)[seed % 4]
            plan = tuple(late_triggers()) if seed % 3 else ()
            config: dict[str, object] = {}
            if seed % 5 == 4:
                # Checkpoints expire while barriers are on their way, and tasks are not told: the next supersedes them.
                config["execution.checkpointing.timeout"] = "60 ms"
                plan += tuple(FaultSpec("rpc.abort", hit=1, action="drop") for _ in range(400))
            spec = small_job(
                protocol,
                seed=seed,
                fuzz=seed,
                task_managers=1 + seed % 2,
                record_bytes=size,
                plan=plan,
                parallelism=2 + seed // 2 % 3,
                config=config,
            )
            engine = Engine(spec, keeps_rows=True)
            oracle = _Oracle(engine, patch)
            for step in range(1, 30):
                engine.run_until(step * 50_000)
                newest = engine.coordinator.newest
                if newest is not None:
                    try:
                        channels, size_bytes = oracle.check(newest)
                    except AssertionError as error:
                        raise AssertionError(f"{protocol}, seed {seed}: {error}") from None
                    checked += channels
                    persisted += size_bytes
    assert checked > 500
    assert (persisted == 0) == (protocol == "aligned")
