"""The fast tier's loop over events: the coordinator, the steps of subtasks, and their messages. Compiled by numba."""

from __future__ import annotations

import math

from backend.advisor.twin.fast import kinds
from backend.advisor.twin.fast.barriers import check_cap, let_overtake, on_barrier, switch, trigger
from backend.advisor.twin.fast.channels import (
    acknowledge,
    emit,
    is_over,
    notify,
    poll,
    put_last,
    recycle,
    resume,
    write,
)
from backend.advisor.twin.fast.compiling import compiled
from backend.advisor.twin.fast.events import (
    draw,
    drop_first,
    has_output,
    leaf_of,
    occupy,
    push,
    schedule,
    settle_idle,
    turn,
)
from backend.advisor.twin.fast.tables import NoPlaceError, Sim

# --- the coordinator --------------------------------------------------------------------------------------------------


@compiled
def start_checkpoints(sim: Sim) -> None:
    """Trigger waiting checkpoints as far as slots (CO-3) and the minimum pause (CO-4) allow."""
    now = sim.state.now_ms
    while sim.state.waiting_triggers > 0 and sim.state.pending_count < sim.settings.concurrent_max:
        pause_ends = sim.state.last_completion_ms + sim.settings.min_pause_ms
        if sim.settings.min_pause_ms > 0 and now < pause_ends - 1e-9:
            sim.state.waiting_triggers = 0
            sim.state.tick_round += 1
            push(sim, pause_ends, kinds.TICK, sim.state.tick_round, 0)
            return
        k = sim.state.last_checkpoint + 1
        if k >= len(sim.checkpoints):
            return
        sim.state.waiting_triggers -= 1
        sim.state.last_checkpoint = k
        sim.state.pending_count += 1
        sim.checkpoints[k].triggered_ms = now
        push(sim, now + sim.settings.timeout_ms, kinds.EXPIRE, k, 0)
        middle, low, high = sim.settings.trigger_mid_ms, sim.settings.trigger_low_ms, sim.settings.trigger_high_ms
        for s in range(len(sim.subtasks)):
            if sim.subtasks[s].is_source:
                x = draw(sim)
                delay = low + 2 * x * (middle - low) if x < 0.5 else middle + (2 * x - 1) * (high - middle)
                push(sim, now + delay, kinds.TRIGGER, s, k)


@compiled
def end_checkpoint(sim: Sim, k: int, status: int) -> None:
    """Record the end of a checkpoint, and start the next one if it waits."""
    now, checkpoint = sim.state.now_ms, sim.checkpoints[k]
    checkpoint.status = status
    checkpoint.duration_ms = now - checkpoint.triggered_ms
    sim.state.pending_count -= 1
    sim.state.ended_count += 1
    if status == kinds.COMPLETED:
        sim.state.last_completion_ms = now
    start_checkpoints(sim)


@compiled
def expire(sim: Sim, k: int) -> None:
    """Abort a checkpoint at its timeout (CO-9): every channel that it blocks is read again (CC-5)."""
    sim.checkpoints[k].status = kinds.EXPIRED
    if sim.state.pending_count == 1:
        sim.state.store_free_ms = sim.state.now_ms
    for s in range(len(sim.subtasks)):
        task = sim.subtasks[s]
        if task.checkpoint == k:
            task.is_input_open = False
            task.outputs_wait = 0
            task.persisting = 0
            task.waits_for_cap = False
    for c in range(len(sim.channels)):
        channel = sim.channels[c]
        if channel.waiting_barrier == k:
            channel.waiting_barrier = 0
        if channel.arrived == k and (channel.is_blocked or channel.is_closed):
            resume(sim, c)
    end_checkpoint(sim, k, kinds.EXPIRED)


# --- steps ------------------------------------------------------------------------------------------------------------


@compiled
def due(sim: Sim, s: int, records: float) -> float:
    """Return when this many records of a source are due (SRC-4)."""
    task = sim.subtasks[s]
    at = records / task.source_per_ms
    period = task.burst_period_ms
    if period <= 0:
        return at
    ratio, in_burst = task.burst_ratio, task.burst_ratio * task.burst_factor
    since = math.floor(at / period) * period
    share = (at - since) / period
    if in_burst >= 1:
        share *= ratio
    elif share < in_burst:
        share *= ratio / in_burst
    else:
        share = ratio + (share - in_burst) / (1 - in_burst) * (1 - ratio)
    return since + share * period


@compiled
def work(sim: Sim, s: int, records: float) -> None:
    """Emit the output of a step at its start, and let its cost pass (DET-6)."""
    task = sim.subtasks[s]
    service = task.service_ms
    task.record_ms = service
    for p in range(task.pool_first, task.pool_end):
        emit(sim, p, records * sim.pools[p].output_bytes)
    if task.activity != kinds.BUSY:
        turn(sim, s, kinds.BUSY)
    at = sim.state.now_ms + max(records * service, 1e-3)
    task.free_at_ms = at
    schedule(sim, s, at)


@compiled
def step(sim: Sim, s: int) -> None:
    """Process a few records, or one barrier (MB-1): output first, then input (MB-2)."""
    task = sim.subtasks[s]
    now = sim.state.now_ms
    sim.state.step_count += 1
    if task.current >= 0 and task.left_bytes <= 1e-6:
        c = task.current
        task.current = -1
        task.left_bytes = 0.0
        recycle(sim, c, task.slot)
    if task.waits_for_cap:
        check_cap(sim, s, task.checkpoint)
        if task.free_at_ms > now:
            return
    if not has_output(sim, s):
        turn(sim, s, kinds.NO_OUTPUT)
        return
    if task.is_source:
        records = task.source_step_records
        if task.source_per_ms > 0:
            at = due(sim, s, task.emitted_records)
            if at > now:
                turn(sim, s, kinds.IDLE)
                task.free_at_ms = now
                schedule(sim, s, at)
                return
        task.emitted_records += records
        work(sim, s, records)
        return
    if task.current < 0:
        found = poll(sim, s)
        if found == 0:
            task.current = -1
            turn(sim, s, kinds.IDLE)
            return
        if found == 2:
            c, item = task.current, int(-task.left_bytes)
            task.current = -1
            task.left_bytes = 0.0
            turn(sim, s, kinds.BUSY)
            task.free_at_ms = now + sim.settings.barrier_cost_ms
            schedule(sim, s, task.free_at_ms)
            on_barrier(sim, s, c, item >> 2, item & 3)
            return
    channel = sim.channels[task.current]
    size = min(task.left_bytes, channel.step_bytes)
    if task.left_bytes - size < 0.25 * channel.step_bytes:
        size = task.left_bytes
    task.left_bytes -= size
    work(sim, s, size / channel.record_bytes)


# --- messages and timers ----------------------------------------------------------------------------------------------


@compiled
def handled_at(sim: Sim, s: int) -> float:
    """Return when the subtask can handle a message: between two records, and after a sync part or a callback (MB-1).

    A subtask that waits for output handles messages (MB-4), unless it waits in the middle of a record (BP-4).
    """
    task = sim.subtasks[s]
    now = sim.state.now_ms
    for p in range(task.pool_first, task.pool_end):
        pool = sim.pools[p]
        # Only one record's output can end in the middle of a record. A step has many, which a subtask emits one by one.
        if pool.is_large and pool.requested > pool.size + sim.settings.overdraft_buffers:
            return float(now + 0.5)
    if task.no_mail_until_ms > now:
        return task.no_mail_until_ms
    left, record = task.free_at_ms - now, task.record_ms
    if task.activity != kinds.BUSY or left <= 0 or record <= 0:
        return now
    rest = left % record
    # Between two records the remainder is 0, or nearly a whole record if rounding made it a little less.
    return now if record - rest < 1e-6 else now + rest


@compiled
def message(sim: Sim, kind: int, a: int, k: int) -> None:
    """Handle a message to a subtask."""
    if kind == kinds.TRIGGER:
        if not is_over(sim, a, k):
            trigger(sim, a, k)
    elif kind == kinds.PRIORITY:
        channel = sim.channels[a]
        if channel.overtaken_by <= k:
            channel.overtaken_by = 0
        on_barrier(sim, channel.receiver, a, k, kinds.OVERTAKING)
        put_last(sim, a)
        notify(sim, a)
        occupy(sim, channel.receiver, sim.settings.barrier_cost_ms)
    elif kind == kinds.INPUT_TIMER:
        if not is_over(sim, a, k) and sim.subtasks[a].switched != k:
            switch(sim, a, k)
    elif kind == kinds.OUTPUT_TIMER:
        task = sim.subtasks[a]
        if task.outputs_wait > 0 and task.started == k and sim.checkpoints[k].status == kinds.PENDING:
            let_overtake(sim, a, k)
    elif sim.subtasks[a].waits_for_cap:
        check_cap(sim, a, sim.subtasks[a].checkpoint)


@compiled
def debloat(sim: Sim) -> None:
    """Set the size of new buffers at each gate from its throughput (DB-1 to DB-4, DB-6, DB-9).

    Sizes are not truncated to whole bytes.
    """
    settings = sim.settings
    target, segment, least = settings.debloat_target_ms, settings.segment_bytes, settings.segment_min_bytes
    period, weight = settings.debloat_period_ms, settings.debloat_samples + 1.0
    threshold = settings.debloat_threshold_ratio
    for g in range(len(sim.gates)):
        gate = sim.gates[g]
        task = sim.subtasks[gate.owner]
        settle_idle(sim, gate.owner)
        received, in_use = 0.0, 0
        for i in range(gate.first, gate.end):
            channel = sim.channels[sim.inputs[i].channel]
            received += channel.received_bytes
            in_use += channel.queue_length + channel.has_builder + channel.remote_length
        active = period - (task.idle_ms - gate.idle_before_ms)
        if active > 1e-3:
            gate.bytes_per_ms = (received - gate.received_before_bytes) / active
        gate.received_before_bytes = received
        gate.idle_before_ms = task.idle_ms
        last = gate.buffer_bytes
        wanted = min(gate.bytes_per_ms * target / max(1, in_use), 2 * last)
        size = max(least, min(last + 2.0 * (wanted - last) / weight, segment))
        gate.buffer_bytes = size
        announced = gate.announced_bytes
        if size == announced or (least < size < segment and abs(size - announced) < threshold * announced):
            continue
        gate.announced_bytes = size
        for i in range(gate.first, gate.end):
            sim.channels[sim.inputs[i].channel].buffer_bytes = size


@compiled
def handle(sim: Sim, kind: int, a: int, b: int) -> None:
    """Handle a timer."""
    now = sim.state.now_ms
    if kind == kinds.FLUSH:
        pool = sim.pools[a]
        pool.is_flush_due = False
        for c in range(pool.first, pool.end):
            channel = sim.channels[c]
            if channel.filled_bytes > 0 and not channel.is_flushed:
                channel.is_flushed = True
                notify(sim, c)
    elif kind == kinds.SYNCED:
        task = sim.subtasks[a]
        if sim.checkpoints[b].status == kinds.PENDING and task.started == b:
            task.sync_part = kinds.SYNCED_ONLY
            task.durable_ms = write(sim, a, task.upload_bytes) + task.async_fixed_ms
            acknowledge(sim, a, b)
    elif kind == kinds.ACK:
        checkpoint = sim.checkpoints[b]
        if checkpoint.status == kinds.PENDING:
            checkpoint.acks += 1
            if checkpoint.acks == len(sim.subtasks):
                end_checkpoint(sim, b, kinds.COMPLETED)
    elif kind == kinds.TICK:
        if a == sim.state.tick_round:
            sim.state.waiting_triggers += 1
            push(sim, now + max(sim.settings.interval_ms, sim.settings.min_pause_ms), kinds.TICK, a, 0)
            start_checkpoints(sim)
    elif kind == kinds.EXPIRE:
        if sim.checkpoints[a].status == kinds.PENDING:
            expire(sim, a)
    elif kind == kinds.CALLBACK:
        task = sim.subtasks[a]
        busy_until = max(now, task.free_at_ms) + task.callback_ms
        task.no_mail_until_ms = max(task.no_mail_until_ms, busy_until)
        occupy(sim, a, task.callback_ms)
        push(sim, max(now + task.callback_period_ms, busy_until), kinds.CALLBACK, a, 0)
    elif kind == kinds.DEBLOAT:
        debloat(sim)
        push(sim, now + sim.settings.debloat_period_ms, kinds.DEBLOAT, 0, 0)


@compiled
def run(sim: Sim, until: float, ended: int, steps: int) -> None:
    """Run until a time, or until this many checkpoints have ended or this many steps are done."""
    while sim.state.ended_count < ended and sim.state.step_count < steps:
        step_at = sim.steps[1].at_ms
        at = sim.events[0].at_ms if sim.state.event_count > 0 else math.inf
        is_step = step_at < at or (step_at == at and sim.steps[1].sequence < sim.events[0].sequence)
        at = min(at, step_at)
        if at > until or at == math.inf:
            sim.state.now_ms = until
            return
        if is_step:
            s, sequence = sim.steps[1].subtask, sim.steps[1].sequence
            sim.state.now_ms = at
            step(sim, s)
            if sim.steps[leaf_of(sim, s)].sequence == sequence:
                # The subtask waits.
                schedule(sim, s, math.inf)
            continue
        event = sim.events[0]
        kind, a, b = event.kind, event.a, event.b
        drop_first(sim)
        sim.state.now_ms = at
        if sim.state.event_count > len(sim.events) - 4096:
            raise NoPlaceError("its fast simulation has too many events at once")
        if kind >= kinds.MAIL:
            message_at = handled_at(sim, sim.channels[a].receiver if kind - kinds.MAIL == kinds.PRIORITY else a)
            if message_at > at + 1e-9:
                push(sim, message_at, kind, a, b)
            else:
                message(sim, kind - kinds.MAIL, a, b)
        elif kinds.TRIGGER <= kind <= kinds.OUTPUT_TIMER or kind == kinds.RECHECK:
            message_at = handled_at(sim, sim.channels[a].receiver if kind == kinds.PRIORITY else a)
            push(sim, message_at, kind + kinds.MAIL, a, b)
        else:
            handle(sim, kind, a, b)
