"""Connects the subtasks of an edge: creates output pools, routes and channels (G-3, BUF-1 to BUF-4).

A channel within a task manager is local. Other channels use a network link.
"""

from __future__ import annotations

from collections.abc import Mapping

from backend.runtime.core.prng import Stream
from backend.runtime.network.buffers import OutputPool
from backend.runtime.network.channel import ChannelKey, InputChannel, LocalChannel
from backend.runtime.network.emission import Output
from backend.runtime.network.remote_channel import FloatingPool, LinkCosts, RemoteChannel
from backend.runtime.network.routes import route
from backend.runtime.network.spans import SizedSubpartition, SpanDecoder
from backend.runtime.task.environment import Environment
from backend.runtime.task.task import Task


def connect(env: Environment, edge: int, tasks: Mapping[tuple[str, int], Task]) -> None:
    """Create the outputs of all senders of an edge, and the channels of all receivers.

    ``tasks`` contains each task by vertex id and subtask index.
    """
    graph, config = env.graph, env.config
    spec = graph.edges[edge]
    source, target = graph.vertex(spec.source), graph.vertex(spec.target)
    by_source: dict[int, list[int]] = {}
    for i, j in graph.channels(edge):
        by_source.setdefault(i, []).append(j)
    can_overtake = graph.supports_overtaking(edge, is_forced=config.is_unaligned_forced)
    for i, targets in by_source.items():
        sender = tasks[source.id, i]
        pool = OutputPool(
            env.scheduler,
            channels=len(targets),
            segment_bytes=config.segment_bytes,
            # The pool has at least one buffer more than there are channels, as in Flink. Otherwise the unfinished
            # buffers of all channels could use up the pool, and only the flush would move data.
            size=max(len(targets) + 1, len(targets) * config.exclusive_buffers + config.floating_buffers),
            max_per_channel=config.max_buffers_per_channel,
            max_overdraft=0 if source.may_block_in_emission else config.max_overdraft,
            flush_timeout_us=config.flush_timeout_us,
            # Each sender has its own flusher, which ticks with its own offset (BUF-2).
            flush_phase_us=Stream(env.seed, f"flush/{edge}/{i}").below(config.flush_timeout_us),
            on_change=sender.on_output_change,
            subpartition=SizedSubpartition if env.is_size_only else None,
        )
        spread = route(
            spec,
            index=edge,
            subtask=i,
            targets=targets,
            max_parallelism=target.effective_max_parallelism,
            parallelism=target.parallelism,
            seed=env.seed,
        )
        output = Output(edge, pool, spread, targets, can_overtake)
        sender.outputs.append(output)
        sender.checkpointing.channel_state.attach(output)
        for position, j in enumerate(targets):
            receiver = tasks[target.id, j]
            channel = _channel(env, edge, sender, receiver, pool, position)
            receiver.gate.channels.append(channel)


def _channel(
    env: Environment, edge: int, sender: Task, receiver: Task, pool: OutputPool, position: int
) -> InputChannel:
    config = env.config
    key = ChannelKey(edge, sender.index, receiver.index)
    index = len(receiver.gate.channels)
    subpartition = pool.subpartitions[position]
    decoder = SpanDecoder() if env.is_size_only else None
    if sender.index % config.task_managers == receiver.index % config.task_managers:
        return LocalChannel(key, index, subpartition, receiver.gate, decoder)
    floating = receiver.floating.setdefault(edge, FloatingPool(config.floating_buffers))
    return RemoteChannel(
        key,
        index,
        subpartition,
        receiver.gate,
        scheduler=env.scheduler,
        costs=LinkCosts(config.link_latency_us, config.link_bytes_per_s),
        exclusive=config.exclusive_buffers,
        floating=floating,
        faults=env.faults if env.faults.concerns("link.send") else None,
        decoder=decoder,
    )
