"""The fast tier's channels: buffers, pools, credits, and the choice of the next input. Compiled by numba.

The rules are those of the reference runtime (``backend/runtime/PROTOCOL.md``), but a buffer is a number of bytes, and a
message between two task managers takes no time. The channel of each output is drawn from the shares of the receivers,
so channels fill and run dry as they do in a real job.
"""

from __future__ import annotations

import math

from backend.advisor.twin.fast import kinds
from backend.advisor.twin.fast.compiling import compiled
from backend.advisor.twin.fast.events import draw, has_output, push, wake, wrapped
from backend.advisor.twin.fast.tables import WAKE_SPREAD, NoPlaceError, Sim


@compiled
def write(sim: Sim, s: int, size: float) -> float:
    """Write to the store, and return when the bytes are durable. All writes share the speed of a shared store."""
    noise = sim.settings.store_noise_ratio
    factor = 1.0
    if noise > 0:
        factor = max(0.1, 1.0 + noise * math.sqrt(-2.0 * math.log(draw(sim))) * math.cos(2.0 * math.pi * draw(sim)))
    begin = sim.state.now_ms
    if sim.settings.is_store_shared:
        begin = max(begin, sim.state.store_free_ms)
    end = begin + size / sim.settings.store_bytes_per_ms * factor
    if sim.settings.is_store_shared:
        sim.state.store_free_ms = end
    return end + sim.settings.store_latency_ms * factor


@compiled
def is_over(sim: Sim, s: int, k: int) -> bool:
    """Return whether the subtask has no further use for barriers of the checkpoint (AL-5, TE-1)."""
    return sim.checkpoints[k].status == kinds.EXPIRED or k <= sim.subtasks[s].done


@compiled
def switch_time(sim: Sim, k: int) -> float:
    """Return when a timer makes the checkpoint unaligned, or now if that is past (AT-1).

    Timers count whole milliseconds. Those that are due in the same one run in any order.
    """
    return max(sim.state.now_ms, sim.checkpoints[k].triggered_ms + sim.settings.aligned_timeout_ms + draw(sim))


@compiled
def acknowledge(sim: Sim, s: int, k: int) -> None:
    """Write the in-flight data and acknowledge, if the sync part, the input and the output are done (TE-7)."""
    task = sim.subtasks[s]
    if task.started != k or task.sync_part != kinds.SYNCED_ONLY:
        return
    if task.is_input_open or task.outputs_wait > 0:
        return
    task.sync_part = kinds.WRITTEN
    at = task.durable_ms
    persisted = task.persisted_bytes
    if persisted > 0:
        sim.checkpoints[k].in_flight_bytes += persisted
        at = max(at, write(sim, s, persisted))
    push(sim, max(at, sim.state.now_ms), kinds.ACK, s, k)


@compiled
def copy(sim: Sim, s: int, c: int, size: float) -> None:
    """Add arriving data to the subtask's in-flight data while the channel's barrier is missing (UC-3, UC-10)."""
    task = sim.subtasks[s]
    k = task.persisting
    if k > 0 and sim.channels[c].arrived < k:
        task.persisted_bytes += size


@compiled
def give_back(sim: Sim, c: int) -> None:
    """Return a segment of the channel to the sender's pool (BUF-3), and wake the sender if it waits for one."""
    channel = sim.channels[c]
    pool = sim.pools[channel.pool]
    pool.requested -= 1
    channel.buffers_in_use -= 1
    if channel.buffers_in_use == sim.settings.channel_buffers_max - 1:
        pool.full_channels -= 1
    s = pool.owner
    task = sim.subtasks[s]
    if task.activity == kinds.NO_OUTPUT and has_output(sim, s):
        wake(sim, s)
    if task.waits_for_cap:
        push(sim, sim.state.now_ms, kinds.RECHECK, s, 0)


@compiled
def enqueue(sim: Sim, c: int, item: float) -> None:
    """Append a buffer or a barrier to the sender's queue. If the queue is full, enlarge its last buffer."""
    channel = sim.channels[c]
    room = sim.queues.shape[1]
    length = channel.queue_length
    if length == room:
        last = wrapped(channel.queue_head + length - 1, room)
        if item > 0 and sim.queues[c, last] > 0:
            sim.queues[c, last] += item
            give_back(sim, c)
            return
        raise NoPlaceError("a queue of its fast simulation is full")
    sim.queues[c, wrapped(channel.queue_head + length, room)] = item
    channel.queue_length = length + 1
    if item > 0:
        channel.data_count += 1


@compiled
def finish(sim: Sim, c: int) -> None:
    """Move the sender's current buffer to the queue (BUF-2), or return it if all of it has been read."""
    channel = sim.channels[c]
    if channel.has_builder:
        channel.has_builder = False
        channel.is_flushed = False
        filled = channel.filled_bytes
        channel.filled_bytes = 0.0
        if filled > 0:
            enqueue(sim, c, filled)
        else:
            give_back(sim, c)


@compiled
def on_ready(sim: Sim, c: int) -> None:
    """Queue the channel at its receiver."""
    channel = sim.channels[c]
    if channel.is_ready:
        return
    channel.is_ready = True
    s = channel.receiver
    task = sim.subtasks[s]
    first = task.input_first
    room = task.input_end - first
    sim.inputs[first + wrapped(task.ready_head + task.ready_count, room)].ready = c
    task.ready_count += 1
    if task.activity == kinds.IDLE:
        wake(sim, s)


@compiled
def put_last(sim: Sim, c: int) -> None:
    """Let the channel's receiver read the other channels of its gate first, if the channel has a turn (Q-6).

    Flink reads a barrier that overtakes before all data, and then puts its channel behind the others. So each
    checkpoint begins the turn anew, in the order in which the barriers came.
    """
    channel = sim.channels[c]
    task = sim.subtasks[channel.receiver]
    first = task.input_first
    room = task.input_end - first
    at, place = task.ready_head, -1
    for _ in range(task.ready_count):
        other = sim.inputs[first + at].ready
        if other == c:
            place = at
        elif place >= 0 and sim.channels[other].gate == channel.gate:
            sim.inputs[first + place].ready = other
            place = at
        at = wrapped(at + 1, room)
    if place >= 0:
        sim.inputs[first + place].ready = c


@compiled
def is_readable(sim: Sim, c: int) -> bool:
    """Return whether the sender's queue has something that may be read: nothing before a barrier that overtakes it."""
    channel = sim.channels[c]
    if channel.is_blocked or channel.overtaken_by:
        return False
    return channel.queue_length > 0 or channel.is_flushed


@compiled
def notify(sim: Sim, c: int) -> None:
    """Tell the channel's receiver, or its link, that there may be something to read."""
    if sim.channels[c].is_remote:
        send(sim, c)
    elif is_readable(sim, c):
        on_ready(sim, c)


@compiled
def take_first(sim: Sim, c: int) -> float:
    """Remove the first buffer or barrier of the sender's queue, and return it. A barrier that blocks stops it (Q-3).

    If there is only a flushed buffer, what it contains is read, and the sender continues to fill the rest of it.
    """
    channel = sim.channels[c]
    channel.is_part = False
    if channel.queue_length == 0:
        part = channel.filled_bytes
        channel.is_part = True
        channel.is_flushed = False
        channel.filled_bytes = 0.0
        channel.limit_bytes -= part
        channel.queued_bytes -= part
        return part
    head = channel.queue_head
    item = sim.queues[c, head]
    channel.queue_head = wrapped(head + 1, sim.queues.shape[1])
    channel.queue_length -= 1
    if item > 0:
        channel.data_count -= 1
        channel.queued_bytes -= item
        if channel.waiting_barrier > 0:
            leave_front(sim, channel.sender, item)
        return item
    k = int(-item) >> 2
    if is_over(sim, channel.receiver, k):
        return item
    mode = sim.settings.mode
    if mode != kinds.AT_LEAST_ONCE and not (mode == kinds.CAPPED and int(-item) & 3 == kinds.TIMEOUTABLE):
        channel.is_blocked = True
    if channel.waiting_barrier == k:
        channel.waiting_barrier = 0
        s = channel.sender
        sim.subtasks[s].outputs_wait -= 1
        acknowledge(sim, s, k)
    return item


@compiled
def leave_front(sim: Sim, s: int, size: float) -> None:
    """Note that output in front of a waiting barrier has left. The barriers overtake once the rest fits (CAP-3)."""
    task = sim.subtasks[s]
    before = task.output_front_bytes
    task.output_front_bytes = before - size
    if sim.settings.mode == kinds.CAPPED and before - size <= sim.settings.inflight_cap_bytes < before:
        push(sim, sim.state.now_ms, kinds.OUTPUT_TIMER, s, task.started)


@compiled
def overtake(sim: Sim, c: int, k: int, before: int) -> None:
    """Send a barrier past the data of the channel (UC-4). The data is read after it, or it would be persisted twice.

    The subtask has sent its barrier to ``before`` other channels first.
    """
    channel = sim.channels[c]
    channel.overtaken_by = k
    late = sim.settings.barrier_cost_ms * (before + WAKE_SPREAD * draw(sim))
    push(sim, sim.state.now_ms + late + (sim.settings.hop_ms if channel.is_remote else 0.0), kinds.PRIORITY, c, k)


@compiled
def send(sim: Sim, c: int) -> None:
    """Send buffers to a remote receiver, one for each of its free buffers (CR-1, CR-5). Barriers need none (CR-3)."""
    channel = sim.channels[c]
    room = sim.remote_queues.shape[1]
    while is_readable(sim, c):
        is_event = channel.queue_length > 0 and sim.queues[c, channel.queue_head] < 0
        if not is_event and channel.exclusive_free + channel.floating_held == 0:
            if sim.settings.exclusive_buffers == 0:
                channel.required = channel.data_count + 1
                grow(sim, c)
                if channel.floating_held > 0:
                    continue
            return
        item = take_first(sim, c)
        s = channel.receiver
        task = sim.subtasks[s]
        k = int(-item) >> 2
        if item < 0 and sim.settings.mode == kinds.ALIGNED_TIMEOUT and int(-item) & 3 == kinds.TIMEOUTABLE:
            if task.switched == k:
                # The receiver has switched already, so that the announced barrier overtakes at once.
                channel.is_blocked = False
                push(sim, sim.state.now_ms, kinds.PRIORITY, c, k)
                continue
            if task.checkpoint < k:
                push(sim, switch_time(sim, k), kinds.INPUT_TIMER, s, k)
        if item < 0 and sim.settings.mode == kinds.CAPPED and int(-item) & 3 == kinds.TIMEOUTABLE:
            # The barrier has left in its place. It overtakes what the receiver has queued.
            overtake(sim, c, k, 0)
            continue
        length = channel.remote_length
        at = wrapped(channel.remote_head + length, room)
        if length == room:
            raise NoPlaceError("a receiver's queue of its fast simulation is full")
        sim.remote_queues[c, at] = item
        channel.remote_length = length + 1
        if item > 0:
            if channel.floating_held > 0:
                channel.floating_held -= 1
                sim.remote_slots[c, at] = kinds.FLOATING
            else:
                channel.exclusive_free -= 1
                sim.remote_slots[c, at] = kinds.OWN
            channel.remote_bytes += item
            channel.received_bytes += item
            copy(sim, s, c, item)
            channel.required = channel.data_count + sim.settings.exclusive_buffers
            grow(sim, c)
            if not channel.is_part:
                give_back(sim, c)
        on_ready(sim, c)


@compiled
def grow(sim: Sim, c: int) -> None:
    """Take floating buffers for the channel while it needs some and the gate has some (CR-2)."""
    channel = sim.channels[c]
    gate = sim.gates[channel.gate]
    while channel.exclusive_free + channel.floating_held < channel.required:
        if gate.floating_free == 0:
            channel.waits = True
            return
        gate.floating_free -= 1
        channel.floating_held += 1


@compiled
def recycle(sim: Sim, c: int, slot: int) -> None:
    """Free the buffer that the receiver has processed. A floating one goes to a channel that waits for one (CR-2)."""
    channel = sim.channels[c]
    if not channel.is_remote:
        if slot != kinds.PART:
            give_back(sim, c)
        return
    gate = sim.gates[channel.gate]
    is_floating = slot == kinds.FLOATING
    if not is_floating:
        channel.exclusive_free += 1
        free = channel.exclusive_free + channel.floating_held
        if free > channel.required and channel.floating_held > 0:
            channel.floating_held -= 1
            is_floating = True
        send(sim, c)
    if is_floating:
        gate.floating_free += 1
        first, end = gate.first, gate.end
        begin = int(draw(sim) * (end - first))
        for i in range(end - first):
            other = sim.inputs[first + wrapped(begin + i, end - first)].channel
            if sim.channels[other].waits:
                sim.channels[other].waits = False
                grow(sim, other)
                send(sim, other)
                if gate.floating_free == 0:
                    return


@compiled
def append(sim: Sim, c: int, size: float) -> None:
    """Write ``size`` bytes into the channel's buffers (BUF-1). A flush follows at the writer's own times (BUF-2)."""
    channel = sim.channels[c]
    p = channel.pool
    pool = sim.pools[p]
    channel.queued_bytes += size
    while size > 0:
        if not channel.has_builder:
            channel.has_builder = True
            channel.limit_bytes = channel.buffer_bytes
            pool.requested += 1
            channel.buffers_in_use += 1
            if channel.buffers_in_use == sim.settings.channel_buffers_max:
                pool.full_channels += 1
        if not pool.is_flush_due:
            pool.is_flush_due = True
            every, phase = sim.settings.flush_ms, pool.flush_phase_ms
            at = (math.floor((sim.state.now_ms - phase) / every) + 1) * every + phase
            push(sim, at, kinds.FLUSH, p, 0)
        part = min(size, channel.limit_bytes - channel.filled_bytes)
        channel.filled_bytes += part
        size -= part
        if channel.filled_bytes >= channel.limit_bytes - 1e-6:
            finish(sim, c)
            notify(sim, c)
        if size < 1e-6:
            return


@compiled
def emit(sim: Sim, p: int, size: float) -> None:
    """Write output of one pool: choose a channel for each of its parts, by the partitioner (PT-1)."""
    pool = sim.pools[p]
    step = pool.step_bytes
    left = pool.left_over_bytes + size
    first, end = pool.first, pool.end
    routing = pool.routing
    while left >= step - 1e-6:
        left -= step
        if routing == kinds.TO_ALL:
            for c in range(first, end):
                append(sim, c, step)
            continue
        if end - first == 1:
            append(sim, first, step)
            continue
        if routing == kinds.IN_TURN:
            c = first + pool.next
            pool.next = wrapped(pool.next + 1, end - first)
        elif draw(sim) < pool.drawn_ratio:
            c, sought = first, draw(sim)
            while c < end - 1 and sought > sim.shares[c].weight_ratio:
                sought -= sim.shares[c].weight_ratio
                c += 1
        else:
            # The channel that is furthest behind its share. Drawing all parts would make the load more uneven than
            # that of single records.
            c, most = first, -1e300
            for each in range(first, end):
                behind = sim.shares[each].deficit + sim.shares[each].weight_ratio
                sim.shares[each].deficit = behind
                if behind > most:
                    c, most = each, behind
            sim.shares[c].deficit -= 1.0
        append(sim, c, step)
    pool.left_over_bytes = max(left, 0.0)


@compiled
def poll(sim: Sim, s: int) -> int:
    """Take the next buffer or barrier of the subtask's input. Return 0 for nothing, 1 for a buffer, 2 for a barrier.

    The channel is then in ``current``, and the size of the buffer or the barrier in ``left_bytes``.
    """
    task = sim.subtasks[s]
    first = task.input_first
    room = task.input_end - first
    while task.ready_count > 0:
        head = task.ready_head
        c = sim.inputs[first + head].ready
        channel = sim.channels[c]
        task.ready_head = wrapped(head + 1, room)
        task.ready_count -= 1
        channel.is_ready = False
        if channel.is_closed and channel.front_bytes < 1e-6:
            continue
        slot = kinds.OWN
        if channel.is_remote:
            if channel.remote_length == 0:
                continue
            at = channel.remote_head
            item, slot = sim.remote_queues[c, at], sim.remote_slots[c, at]
            channel.remote_head = wrapped(at + 1, sim.remote_queues.shape[1])
            channel.remote_length -= 1
            if item > 0:
                channel.remote_bytes -= item
                channel.front_bytes = max(0.0, channel.front_bytes - item)
            if channel.remote_length > 0:
                on_ready(sim, c)
        else:
            if not is_readable(sim, c):
                continue
            item = take_first(sim, c)
            if channel.is_part:
                slot = kinds.PART
            if item > 0:
                channel.received_bytes += item
                copy(sim, s, c, item)
            if is_readable(sim, c):
                on_ready(sim, c)
        task.current = c
        task.slot = slot
        task.left_bytes = item
        return 1 if item > 0 else 2
    return 0


@compiled
def resume(sim: Sim, c: int) -> None:
    """Let a blocked or closed channel be read again."""
    channel = sim.channels[c]
    channel.is_closed = False
    if channel.is_blocked:
        channel.is_blocked = False
        notify(sim, c)
    elif (channel.is_remote and channel.remote_length > 0) or (not channel.is_remote and is_readable(sim, c)):
        on_ready(sim, c)
