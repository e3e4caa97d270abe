"""The fast tier's loop over events: the coordinator, the steps of subtasks, and their messages. Compiled by numba."""

from __future__ import annotations

import math

from backend.advisor.twin.fast import fields as f
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
from backend.advisor.twin.fast.events import (
    compiled,
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
from backend.advisor.twin.fast.fields import NoPlaceError, Sim

# --- the coordinator --------------------------------------------------------------------------------------------------


@compiled
def start_checkpoints(n: Sim) -> None:
    """Trigger waiting checkpoints as far as slots (CO-3) and the minimum pause (CO-4) allow."""
    now = n.v[0, f.NOW]
    while n.i[0, f.TICKS] > 0 and n.i[0, f.ACTIVE] < n.i[0, f.CONCURRENT]:
        pause_ends = n.v[0, f.LAST_COMPLETION] + n.v[0, f.MIN_PAUSE]
        if n.v[0, f.MIN_PAUSE] > 0 and now < pause_ends - 1e-9:
            n.i[0, f.TICKS] = 0
            n.i[0, f.TICK_ROUND] += 1
            push(n, pause_ends, f.TICK, n.i[0, f.TICK_ROUND], 0)
            return
        k = n.i[0, f.TAKEN] + 1
        if k >= n.i.shape[0]:
            return
        n.i[0, f.TICKS] -= 1
        n.i[0, f.TAKEN] = k
        n.i[0, f.ACTIVE] += 1
        n.v[k, f.TRIGGERED] = now
        push(n, now + n.v[0, f.TIMEOUT], f.EXPIRE, k, 0)
        middle, low, high = n.v[0, f.TRIGGER_MID], n.v[0, f.TRIGGER_LOW], n.v[0, f.TRIGGER_HIGH]
        for s in range(n.i[0, f.FIRST_TASK], n.i[0, f.END_TASK]):
            if n.i[s, f.SOURCE]:
                x = draw(n)
                delay = low + 2 * x * (middle - low) if x < 0.5 else middle + (2 * x - 1) * (high - middle)
                push(n, now + delay, f.TRIGGER, s, k)


@compiled
def end_checkpoint(n: Sim, k: int, status: int) -> None:
    """Record the end of a checkpoint, and start the next one if it waits."""
    now = n.v[0, f.NOW]
    n.i[k, f.STATUS] = status
    n.v[k, f.DURATION] = now - n.v[k, f.TRIGGERED]
    n.i[0, f.ACTIVE] -= 1
    n.i[0, f.ENDED] += 1
    if status == f.COMPLETED:
        n.v[0, f.LAST_COMPLETION] = now
    start_checkpoints(n)


@compiled
def expire(n: Sim, k: int) -> None:
    """Abort a checkpoint at its timeout (CO-9): every channel that it blocks is read again (CC-5)."""
    n.i[k, f.STATUS] = f.EXPIRED
    if n.i[0, f.ACTIVE] == 1:
        n.v[0, f.STORE_FREE] = n.v[0, f.NOW]
    for s in range(n.i[0, f.FIRST_TASK], n.i[0, f.END_TASK]):
        if n.i[s, f.CHECKPOINT] == k:
            n.i[s, f.INPUT_OPEN] = 0
            n.i[s, f.OUTPUTS_WAIT] = 0
            n.i[s, f.PERSISTING] = 0
            n.i[s, f.CAP_WAITS] = 0
    for c in range(1, n.i[0, f.END_CHANNEL]):
        if n.i[c, f.WAITING_BARRIER] == k:
            n.i[c, f.WAITING_BARRIER] = 0
        if n.i[c, f.ARRIVED] == k and (n.i[c, f.BLOCKED] or n.i[c, f.CLOSED]):
            resume(n, c)
    end_checkpoint(n, k, f.EXPIRED)


# --- steps ------------------------------------------------------------------------------------------------------------


@compiled
def due(n: Sim, s: int, records: float) -> float:
    """Return when this many records of a source are due (SRC-4)."""
    at = records / n.v[s, f.SOURCE_RATE]
    period = n.v[s, f.BURST_PERIOD]
    if period <= 0:
        return at
    ratio, in_burst = n.v[s, f.BURST_RATIO], n.v[s, f.BURST_RATIO] * n.v[s, f.BURST_FACTOR]
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
def work(n: Sim, s: int, records: float) -> None:
    """Emit the output of a step at its start, and let its cost pass (DET-6)."""
    service = n.v[s, f.SERVICE]
    n.v[s, f.RECORD_TIME] = service
    for p in range(n.i[s, f.POOL_FIRST], n.i[s, f.POOL_END]):
        emit(n, p, records * n.v[p, f.OUTPUT])
    if n.i[s, f.ACTIVITY] != f.BUSY:
        turn(n, s, f.BUSY)
    at = n.v[0, f.NOW] + max(records * service, 1e-3)
    n.v[s, f.FREE_AT] = at
    schedule(n, s, at)


@compiled
def step(n: Sim, s: int) -> None:
    """Process a few records, or one barrier (MB-1): output first, then input (MB-2)."""
    now = n.v[0, f.NOW]
    n.i[0, f.STEPS] += 1
    if n.i[s, f.CURRENT] >= 0 and n.v[s, f.LEFT] <= 1e-6:
        c = n.i[s, f.CURRENT]
        n.i[s, f.CURRENT] = -1
        n.v[s, f.LEFT] = 0.0
        recycle(n, c, n.i[s, f.SLOT])
    if n.i[s, f.CAP_WAITS]:
        check_cap(n, s, n.i[s, f.CHECKPOINT])
        if n.v[s, f.FREE_AT] > now:
            return
    if not has_output(n, s):
        turn(n, s, f.NO_OUTPUT)
        return
    if n.i[s, f.SOURCE]:
        records = n.v[s, f.SOURCE_STEP]
        if n.v[s, f.SOURCE_RATE] > 0:
            at = due(n, s, n.v[s, f.EMITTED])
            if at > now:
                turn(n, s, f.IDLE)
                n.v[s, f.FREE_AT] = now
                schedule(n, s, at)
                return
        n.v[s, f.EMITTED] += records
        work(n, s, records)
        return
    if n.i[s, f.CURRENT] < 0:
        found = poll(n, s)
        if found == 0:
            n.i[s, f.CURRENT] = -1
            turn(n, s, f.IDLE)
            return
        if found == 2:
            c, item = n.i[s, f.CURRENT], int(-n.v[s, f.LEFT])
            n.i[s, f.CURRENT] = -1
            n.v[s, f.LEFT] = 0.0
            turn(n, s, f.BUSY)
            n.v[s, f.FREE_AT] = now + n.v[0, f.BARRIER_COST]
            schedule(n, s, n.v[s, f.FREE_AT])
            on_barrier(n, s, c, item >> 2, item & 3)
            return
    c = n.i[s, f.CURRENT]
    size = min(n.v[s, f.LEFT], n.v[c, f.STEP_BYTES])
    if n.v[s, f.LEFT] - size < 0.25 * n.v[c, f.STEP_BYTES]:
        size = n.v[s, f.LEFT]
    n.v[s, f.LEFT] -= size
    work(n, s, size / n.v[c, f.RECORD])


# --- messages and timers ----------------------------------------------------------------------------------------------


@compiled
def handled_at(n: Sim, s: int) -> float:
    """Return when the subtask can handle a message: between two records, and after a sync part or a callback (MB-1).

    A subtask that waits for output handles messages (MB-4), unless it waits in the middle of a record (BP-4).
    """
    now = n.v[0, f.NOW]
    for p in range(n.i[s, f.POOL_FIRST], n.i[s, f.POOL_END]):
        # Only one record's output can end in the middle of a record. A step has many, which a subtask emits one by one.
        if n.i[p, f.IS_LARGE] and n.i[p, f.REQUESTED] > n.i[p, f.SIZE] + n.i[0, f.OVERDRAFT]:
            return float(now + 0.5)
    if n.v[s, f.NO_MAIL_UNTIL] > now:
        return n.v[s, f.NO_MAIL_UNTIL]
    left, record = n.v[s, f.FREE_AT] - now, n.v[s, f.RECORD_TIME]
    if n.i[s, f.ACTIVITY] != f.BUSY or left <= 0 or record <= 0:
        return now
    rest = left % record
    # Between two records the remainder is 0, or nearly a whole record if rounding made it a little less.
    return now if record - rest < 1e-6 else now + rest


@compiled
def message(n: Sim, kind: int, a: int, k: int) -> None:
    """Handle a message to a subtask."""
    if kind == f.TRIGGER:
        if not is_over(n, a, k):
            trigger(n, a, k)
    elif kind == f.PRIORITY:
        s = n.i[a, f.RECEIVER]
        if n.i[a, f.OVERTAKEN] <= k:
            n.i[a, f.OVERTAKEN] = 0
        on_barrier(n, s, a, k, f.OVERTAKING)
        put_last(n, a)
        notify(n, a)
        occupy(n, s, n.v[0, f.BARRIER_COST])
    elif kind == f.INPUT_TIMER:
        if not is_over(n, a, k) and n.i[a, f.SWITCHED] != k:
            switch(n, a, k)
    elif kind == f.OUTPUT_TIMER:
        if n.i[a, f.OUTPUTS_WAIT] > 0 and n.i[a, f.STARTED] == k and n.i[k, f.STATUS] == f.PENDING:
            let_overtake(n, a, k)
    elif n.i[a, f.CAP_WAITS]:
        check_cap(n, a, n.i[a, f.CHECKPOINT])


@compiled
def debloat(n: Sim) -> None:
    """Set the size of new buffers at each gate from its throughput (DB-1 to DB-4, DB-6, DB-9).

    Sizes are not truncated to whole bytes.
    """
    target, segment, least = n.v[0, f.DEBLOAT_TARGET], n.v[0, f.SEGMENT], n.v[0, f.SEGMENT_MIN]
    period, weight, threshold = n.v[0, f.DEBLOAT_PERIOD], n.v[0, f.DEBLOAT_SAMPLES] + 1.0, n.v[0, f.DEBLOAT_THRESHOLD]
    for g in range(n.i[0, f.FIRST_GATE], n.i[0, f.END_GATE]):
        s = n.i[g, f.OWNER]
        settle_idle(n, s)
        received, in_use = 0.0, 0
        for i in range(n.i[g, f.FIRST], n.i[g, f.END]):
            c = n.i[i, f.INPUT]
            received += n.v[c, f.RECEIVED]
            in_use += n.i[c, f.LENGTH] + n.i[c, f.HAS_BUILDER] + n.i[c, f.REMOTE_LENGTH]
        active = period - (n.v[s, f.IDLE_TIME] - n.v[g, f.IDLE_BEFORE])
        if active > 1e-3:
            n.v[g, f.RATE] = (received - n.v[g, f.RECEIVED_BEFORE]) / active
        n.v[g, f.RECEIVED_BEFORE] = received
        n.v[g, f.IDLE_BEFORE] = n.v[s, f.IDLE_TIME]
        last = n.v[g, f.BUFFER_SIZE]
        wanted = min(n.v[g, f.RATE] * target / max(1, in_use), 2 * last)
        size = max(least, min(last + 2.0 * (wanted - last) / weight, segment))
        n.v[g, f.BUFFER_SIZE] = size
        announced = n.v[g, f.ANNOUNCED]
        if size == announced or (least < size < segment and abs(size - announced) < threshold * announced):
            continue
        n.v[g, f.ANNOUNCED] = size
        for i in range(n.i[g, f.FIRST], n.i[g, f.END]):
            n.v[n.i[i, f.INPUT], f.BUFFER] = size


@compiled
def handle(n: Sim, kind: int, a: int, b: int) -> None:
    """Handle a timer."""
    now = n.v[0, f.NOW]
    if kind == f.FLUSH:
        n.i[a, f.FLUSH_DUE] = 0
        for c in range(n.i[a, f.FIRST], n.i[a, f.END]):
            if n.v[c, f.FILLED] > 0 and not n.i[c, f.FLUSHED]:
                n.i[c, f.FLUSHED] = 1
                notify(n, c)
    elif kind == f.SYNCED:
        if n.i[b, f.STATUS] == f.PENDING and n.i[a, f.STARTED] == b:
            n.i[a, f.IS_SYNCED] = 1
            n.v[a, f.STATE_DURABLE] = write(n, a, n.v[a, f.UPLOAD]) + n.v[a, f.ASYNC_FIXED]
            acknowledge(n, a, b)
    elif kind == f.ACK:
        if n.i[b, f.STATUS] == f.PENDING:
            n.i[b, f.ACKS] += 1
            if n.i[b, f.ACKS] == n.i[0, f.END_TASK] - n.i[0, f.FIRST_TASK]:
                end_checkpoint(n, b, f.COMPLETED)
    elif kind == f.TICK:
        if a == n.i[0, f.TICK_ROUND]:
            n.i[0, f.TICKS] += 1
            push(n, now + max(n.v[0, f.INTERVAL], n.v[0, f.MIN_PAUSE]), f.TICK, a, 0)
            start_checkpoints(n)
    elif kind == f.EXPIRE:
        if n.i[a, f.STATUS] == f.PENDING:
            expire(n, a)
    elif kind == f.CALLBACK:
        busy_until = max(now, n.v[a, f.FREE_AT]) + n.v[a, f.CALLBACK_TIME]
        n.v[a, f.NO_MAIL_UNTIL] = max(n.v[a, f.NO_MAIL_UNTIL], busy_until)
        occupy(n, a, n.v[a, f.CALLBACK_TIME])
        push(n, max(now + n.v[a, f.CALLBACK_PERIOD], busy_until), f.CALLBACK, a, 0)
    elif kind == f.DEBLOAT:
        debloat(n)
        push(n, now + n.v[0, f.DEBLOAT_PERIOD], f.DEBLOAT, 0, 0)


@compiled
def run(n: Sim, until: float, ended: int, steps: int) -> None:
    """Run until a time, or until this many checkpoints have ended or this many steps are done."""
    while n.i[0, f.ENDED] < ended and n.i[0, f.STEPS] < steps:
        step_at = n.s[1, 0]
        at = n.e[0, 0] if n.i[0, f.EVENTS] > 0 else math.inf
        is_step = step_at < at or (step_at == at and n.s[1, 1] < n.e[0, 1])
        at = min(at, step_at)
        if at > until or at == math.inf:
            n.v[0, f.NOW] = until
            return
        if is_step:
            s, sequence = int(n.s[1, 2]), n.s[1, 1]
            n.v[0, f.NOW] = at
            step(n, s)
            if n.s[leaf_of(n, s), 1] == sequence:
                # The subtask waits.
                schedule(n, s, math.inf)
            continue
        kind, a, b = int(n.e[0, 2]), int(n.e[0, 3]), int(n.e[0, 4])
        drop_first(n)
        n.v[0, f.NOW] = at
        if n.i[0, f.EVENTS] > n.e.shape[0] - 4096:
            raise NoPlaceError("its fast simulation has too many events at once")
        if kind >= f.MAIL:
            message_at = handled_at(n, n.i[a, f.RECEIVER] if kind - f.MAIL == f.PRIORITY else a)
            if message_at > at + 1e-9:
                push(n, message_at, kind, a, b)
            else:
                message(n, kind - f.MAIL, a, b)
        elif f.TRIGGER <= kind <= f.OUTPUT_TIMER or kind == f.RECHECK:
            message_at = handled_at(n, n.i[a, f.RECEIVER] if kind == f.PRIORITY else a)
            push(n, message_at, kind + f.MAIL, a, b)
        else:
            handle(n, kind, a, b)
