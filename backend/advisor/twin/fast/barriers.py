"""The fast tier's checkpoints at a subtask: barriers, alignment, in-flight data, sync part. Compiled by numba.

Each kind of checkpoint does what the protocol of this kind does in ``backend/runtime/protocols``. A barrier has an
exact position in its queue. If it overtakes, it takes ``hop_ms`` longer to another task manager than within one.
"""

from __future__ import annotations

import math

from backend.advisor.twin.fast import kinds
from backend.advisor.twin.fast.channels import (
    acknowledge,
    enqueue,
    finish,
    is_over,
    notify,
    overtake,
    resume,
    send,
    switch_time,
)
from backend.advisor.twin.fast.compiling import compiled
from backend.advisor.twin.fast.events import occupy, push
from backend.advisor.twin.fast.tables import Sim


@compiled
def input_done(sim: Sim, s: int, k: int) -> None:
    """End the checkpoint at the subtask's input: all barriers have arrived (AL-4, UC-5)."""
    checkpoint, task = sim.checkpoints[k], sim.subtasks[s]
    aligned_for = sim.state.now_ms - task.first_barrier_ms
    checkpoint.alignment_ms = max(checkpoint.alignment_ms, aligned_for)
    task.is_input_open = False
    task.persisting = 0
    task.done = k
    task.waits_for_cap = False
    for i in range(task.input_first, task.input_end):
        c = sim.inputs[i].channel
        channel = sim.channels[c]
        if channel.is_blocked and channel.arrived < k:
            # The barrier is still queued at the remote receiver.
            continue
        if channel.is_blocked or channel.is_closed:
            resume(sim, c)
    acknowledge(sim, s, k)


@compiled
def snapshot(sim: Sim, s: int, k: int, kind: int) -> None:
    """Forward the barrier as ``kind`` (TE-3), and start the sync part (TE-6).

    An edge that cannot be overtaken gets a barrier in the queue (OPT-5).
    """
    checkpoint, task = sim.checkpoints[k], sim.subtasks[s]
    now = sim.state.now_ms
    task.started = k
    task.sync_part = kinds.NOT_SYNCED
    task.outputs_wait = 0
    task.output_front_bytes = 0.0
    sent = 0
    for p in range(task.pool_first, task.pool_end):
        pool = sim.pools[p]
        as_kind = kind
        if not pool.can_overtake and kind != kinds.IN_ORDER:
            as_kind = kinds.FORCED
        if as_kind == kinds.OVERTAKING:
            task.persisted_bytes += pool.left_over_bytes
        for c in range(pool.first, pool.end):
            channel = sim.channels[c]
            finish(sim, c)
            if as_kind == kinds.OVERTAKING:
                task.persisted_bytes += channel.queued_bytes
                overtake(sim, c, k, sent)
                sent += 1
                continue
            if as_kind == kinds.TIMEOUTABLE:
                channel.waiting_barrier = k
                task.outputs_wait += 1
                task.output_front_bytes += channel.queued_bytes
            enqueue(sim, c, -(4.0 * k + as_kind))
    for p in range(task.pool_first, task.pool_end):
        pool = sim.pools[p]
        for c in range(pool.first, pool.end):
            notify(sim, c)
    if task.outputs_wait > 0 and sim.settings.mode == kinds.ALIGNED_TIMEOUT:
        push(sim, switch_time(sim, k), kinds.OUTPUT_TIMER, s, k)
    pause = task.sync_ms
    checkpoint.pause_ms = max(checkpoint.pause_ms, pause)
    task.no_mail_until_ms = max(task.no_mail_until_ms, now + pause)
    push(sim, now + pause, kinds.SYNCED, s, k)
    occupy(sim, s, pause)


@compiled
def start_unaligned(sim: Sim, s: int, k: int) -> None:
    """Persist the queued input, let the barrier overtake the queued output, and start the sync part (UC-2)."""
    task = sim.subtasks[s]
    task.persisted_bytes += received_bytes(sim, s)
    task.persisting = k
    snapshot(sim, s, k, kinds.OVERTAKING)


@compiled
def received_bytes(sim: Sim, s: int) -> float:
    """Return the bytes that the subtask has received and not processed."""
    task = sim.subtasks[s]
    total = 0.0
    if task.current >= 0:
        total = task.left_bytes
        rest = task.free_at_ms - sim.state.now_ms
        if task.pool_first == task.pool_end and rest > 0 and task.service_ms > 0:
            # Whole records of the step have not begun. Other subtasks have emitted their output already.
            total += math.floor(rest / task.service_ms + 1e-6) * sim.channels[task.current].record_bytes
    for i in range(task.input_first, task.input_end):
        total += sim.channels[sim.inputs[i].channel].remote_bytes
    return total


@compiled
def switch(sim: Sim, s: int, k: int) -> None:
    """Make the checkpoint unaligned at this subtask: announced barriers overtake (AT-2 to AT-4)."""
    task = sim.subtasks[s]
    task.switched = k
    if task.checkpoint == k and task.arrivals > 0:
        start_unaligned(sim, s, k)
    room = sim.remote_queues.shape[1]
    for i in range(task.input_first, task.input_end):
        c = sim.inputs[i].channel
        channel = sim.channels[c]
        if not channel.is_remote or channel.arrived >= k:
            continue
        # A sender waits behind its blocking barrier, so the barrier is the last in the receiver's queue.
        length = channel.remote_length
        if length == 0:
            continue
        if sim.remote_queues[c, (channel.remote_head + length - 1) % room] == -(4.0 * k + kinds.TIMEOUTABLE):
            channel.remote_length = length - 1
            channel.is_blocked = False
            push(sim, sim.state.now_ms, kinds.PRIORITY, c, k)
            send(sim, c)


@compiled
def check_cap(sim: Sim, s: int, k: int) -> None:
    """Take the snapshot of a capped checkpoint if what it persists fits or its input is processed (CAP-1 to CAP-3)."""
    task = sim.subtasks[s]
    if task.arrivals < task.input_end - task.input_first or task.started == k:
        return
    in_front = task.left_bytes if task.current >= 0 else 0.0
    for i in range(task.input_first, task.input_end):
        in_front += sim.channels[sim.inputs[i].channel].front_bytes
    if in_front + output_bytes(sim, s) <= sim.settings.inflight_cap_bytes:
        task.persisted_bytes += in_front
        snapshot(sim, s, k, kinds.OVERTAKING)
    elif in_front < 1e-6:
        snapshot(sim, s, k, over_cap(sim, s))
    else:
        task.waits_for_cap = True
        return
    input_done(sim, s, k)


@compiled
def over_cap(sim: Sim, s: int) -> int:
    """Return the kind of barrier that a subtask forwards if its output exceeds the cap (CAP-3).

    The barrier may overtake later, unless the beginnings of records at a receiver could exceed the cap.
    """
    task = sim.subtasks[s]
    for p in range(task.pool_first, task.pool_end):
        receiver, begun = sim.subtasks[sim.channels[sim.pools[p].first].receiver], 0.0
        for i in range(receiver.input_first, receiver.input_end):
            begun += sim.channels[sim.inputs[i].channel].record_bytes
        if begun > sim.settings.inflight_cap_bytes:
            return kinds.IN_ORDER
    return kinds.TIMEOUTABLE


@compiled
def output_bytes(sim: Sim, s: int) -> float:
    """Return the queued output that a barrier could overtake."""
    task = sim.subtasks[s]
    total = 0.0
    for p in range(task.pool_first, task.pool_end):
        pool = sim.pools[p]
        if pool.can_overtake:
            for c in range(pool.first, pool.end):
                total += sim.channels[c].queued_bytes
    return total


@compiled
def begin(sim: Sim, s: int, k: int) -> None:
    """Note the first sign of a checkpoint at the subtask (AL-3, UC-1)."""
    checkpoint, task = sim.checkpoints[k], sim.subtasks[s]
    now = sim.state.now_ms
    task.checkpoint = k
    task.arrivals = 0
    task.is_input_open = True
    task.first_barrier_ms = now
    task.persisted_bytes = 0.0
    checkpoint.travel_ms = max(checkpoint.travel_ms, now - checkpoint.triggered_ms)
    if sim.settings.mode == kinds.ALIGNED_TIMEOUT and task.switched != k:
        push(sim, switch_time(sim, k), kinds.INPUT_TIMER, s, k)


@compiled
def on_barrier(sim: Sim, s: int, c: int, k: int, kind: int) -> None:
    """Handle a barrier that was read from a channel, or that overtook its data.

    Rules: aligned AL-1 to AL-5, at least once ALO-1, unaligned UC-1 to UC-5, aligned timeout AT-5, capped CAP-2, CAP-3.
    """
    channel, task = sim.channels[c], sim.subtasks[s]
    if is_over(sim, s, k):
        resume(sim, c)
        return
    if task.checkpoint < k:
        begin(sim, s, k)
    channel.arrived = k
    task.arrivals += 1
    is_last = task.arrivals == task.input_end - task.input_first
    mode = sim.settings.mode
    if mode == kinds.CAPPED:
        if kind == kinds.OVERTAKING or kind == kinds.TIMEOUTABLE:
            channel.is_closed = True
            channel.front_bytes = channel.remote_bytes
        check_cap(sim, s, k)
        return
    if mode == kinds.ALIGNED or mode == kinds.AT_LEAST_ONCE:
        if is_last:
            snapshot(sim, s, k, kinds.IN_ORDER)
            input_done(sim, s, k)
        return
    if mode == kinds.ALIGNED_TIMEOUT and task.switched != k:
        if kind != kinds.OVERTAKING:
            if is_last:
                snapshot(sim, s, k, kinds.TIMEOUTABLE)
                input_done(sim, s, k)
            elif sim.state.now_ms > sim.checkpoints[k].triggered_ms + sim.settings.aligned_timeout_ms:
                switch(sim, s, k)
            return
        switch(sim, s, k)
    if task.started != k:
        start_unaligned(sim, s, k)
    if is_last:
        input_done(sim, s, k)


@compiled
def let_overtake(sim: Sim, s: int, k: int) -> None:
    """Let the barriers that wait in the subtask's output overtake the data in front of them (AT-6, Q-5, CAP-3)."""
    task = sim.subtasks[s]
    room, sent = sim.queues.shape[1], 0
    for p in range(task.pool_first, task.pool_end):
        pool = sim.pools[p]
        for c in range(pool.first, pool.end):
            channel = sim.channels[c]
            if channel.waiting_barrier != k:
                continue
            channel.waiting_barrier = 0
            head, length = channel.queue_head, channel.queue_length
            i = 0
            while sim.queues[c, (head + i) % room] > 0:
                task.persisted_bytes += sim.queues[c, (head + i) % room]
                i += 1
            while i < length - 1:
                sim.queues[c, (head + i) % room] = sim.queues[c, (head + i + 1) % room]
                i += 1
            channel.queue_length = length - 1
            overtake(sim, c, k, sent)
            sent += 1
    task.outputs_wait = 0
    acknowledge(sim, s, k)


@compiled
def trigger(sim: Sim, s: int, k: int) -> None:
    """Start the checkpoint at a source (UC-8, SRC-3)."""
    begin(sim, s, k)
    task = sim.subtasks[s]
    task.is_input_open = False
    task.done = k
    mode = sim.settings.mode
    kind = kinds.IN_ORDER
    if mode == kinds.UNALIGNED:
        kind = kinds.OVERTAKING
    elif mode == kinds.CAPPED:
        kind = kinds.OVERTAKING if output_bytes(sim, s) <= sim.settings.inflight_cap_bytes else over_cap(sim, s)
    elif mode == kinds.ALIGNED_TIMEOUT:
        kind = kinds.TIMEOUTABLE
    snapshot(sim, s, k, kind)
