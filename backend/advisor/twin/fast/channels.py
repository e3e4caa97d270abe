"""The fast tier's channels: buffers, pools, credits, and the choice of the next input. Compiled by numba.

The rules are those of the reference runtime (``backend/runtime/PROTOCOL.md``), but a buffer is a number of bytes, and a
message between two task managers takes no time. The channel of each output is drawn from the shares of the receivers,
so channels fill and run dry as they do in a real job.
"""

from __future__ import annotations

import math

from backend.advisor.twin.fast import fields as f
from backend.advisor.twin.fast.events import compiled, draw, has_output, push, wake, wrapped
from backend.advisor.twin.fast.fields import NoPlaceError, Sim


@compiled
def write(n: Sim, s: int, size: float) -> float:
    """Write to the store, and return when the bytes are durable. All writes share the speed of a shared store."""
    noise = n.v[0, f.STORE_NOISE]
    factor = 1.0
    if noise > 0:
        factor = max(0.1, 1.0 + noise * math.sqrt(-2.0 * math.log(draw(n))) * math.cos(2.0 * math.pi * draw(n)))
    begin = n.v[0, f.NOW]
    if n.i[0, f.STORE_SHARED]:
        begin = max(begin, n.v[0, f.STORE_FREE])
    end = begin + size / n.v[0, f.STORE_RATE] * factor
    if n.i[0, f.STORE_SHARED]:
        n.v[0, f.STORE_FREE] = end
    return end + n.v[0, f.STORE_LATENCY] * factor


@compiled
def is_over(n: Sim, s: int, k: int) -> bool:
    """Return whether the subtask has no further use for barriers of the checkpoint (AL-5, TE-1)."""
    return n.i[k, f.STATUS] == f.EXPIRED or k <= n.i[s, f.DONE]


@compiled
def switch_time(n: Sim, k: int) -> float:
    """Return when a timer makes the checkpoint unaligned, or now if that is past (AT-1).

    Timers count whole milliseconds. Those that are due in the same one run in any order.
    """
    return max(n.v[0, f.NOW], n.v[k, f.TRIGGERED] + n.v[0, f.ALIGNED_TIMEOUT_MS] + draw(n))


@compiled
def acknowledge(n: Sim, s: int, k: int) -> None:
    """Write the in-flight data and acknowledge, if the sync part, the input and the output are done (TE-7)."""
    if n.i[s, f.STARTED] != k or n.i[s, f.IS_SYNCED] != 1:
        return
    if n.i[s, f.INPUT_OPEN] or n.i[s, f.OUTPUTS_WAIT] > 0:
        return
    n.i[s, f.IS_SYNCED] = 2
    at = n.v[s, f.STATE_DURABLE]
    persisted = n.v[s, f.PERSISTED]
    if persisted > 0:
        n.v[k, f.IN_FLIGHT] += persisted
        at = max(at, write(n, s, persisted))
    push(n, max(at, n.v[0, f.NOW]), f.ACK, s, k)


@compiled
def copy(n: Sim, s: int, c: int, size: float) -> None:
    """Add arriving data to the subtask's in-flight data while the channel's barrier is missing (UC-3, UC-10)."""
    k = n.i[s, f.PERSISTING]
    if k > 0 and n.i[c, f.ARRIVED] < k:
        n.v[s, f.PERSISTED] += size


@compiled
def give_back(n: Sim, c: int) -> None:
    """Return a segment of the channel to the sender's pool (BUF-3), and wake the sender if it waits for one."""
    p = n.i[c, f.POOL]
    n.i[p, f.REQUESTED] -= 1
    n.i[c, f.IN_USE] -= 1
    if n.i[c, f.IN_USE] == n.i[0, f.BUFFERS_MAX] - 1:
        n.i[p, f.FULL] -= 1
    s = n.i[p, f.OWNER]
    if n.i[s, f.ACTIVITY] == f.NO_OUTPUT and has_output(n, s):
        wake(n, s)
    if n.i[s, f.CAP_WAITS]:
        push(n, n.v[0, f.NOW], f.RECHECK, s, 0)


@compiled
def enqueue(n: Sim, c: int, item: float) -> None:
    """Append a buffer or a barrier to the sender's queue. If the queue is full, enlarge its last buffer."""
    room = n.i[0, f.ROOM]
    length = n.i[c, f.LENGTH]
    if length == room:
        last = wrapped(n.i[c, f.HEAD] + length - 1, room)
        if item > 0 and n.v[c, f.QUEUE + last] > 0:
            n.v[c, f.QUEUE + last] += item
            give_back(n, c)
            return
        raise NoPlaceError("a queue of its fast simulation is full")
    n.v[c, f.QUEUE + wrapped(n.i[c, f.HEAD] + length, room)] = item
    n.i[c, f.LENGTH] = length + 1
    if item > 0:
        n.i[c, f.DATA_COUNT] += 1


@compiled
def finish(n: Sim, c: int) -> None:
    """Move the sender's current buffer to the queue (BUF-2), or return it if all of it has been read."""
    if n.i[c, f.HAS_BUILDER]:
        n.i[c, f.HAS_BUILDER] = 0
        n.i[c, f.FLUSHED] = 0
        filled = n.v[c, f.FILLED]
        n.v[c, f.FILLED] = 0.0
        if filled > 0:
            enqueue(n, c, filled)
        else:
            give_back(n, c)


@compiled
def on_ready(n: Sim, c: int) -> None:
    """Queue the channel at its receiver."""
    if n.i[c, f.READY]:
        return
    n.i[c, f.READY] = 1
    s = n.i[c, f.RECEIVER]
    first = n.i[s, f.INPUT_FIRST]
    room = n.i[s, f.INPUT_END] - first
    n.i[first + wrapped(n.i[s, f.READY_HEAD] + n.i[s, f.READY_COUNT], room), f.READY_AT] = c
    n.i[s, f.READY_COUNT] += 1
    if n.i[s, f.ACTIVITY] == f.IDLE:
        wake(n, s)


@compiled
def put_last(n: Sim, c: int) -> None:
    """Let the channel's receiver read the other channels of its gate first, if the channel has a turn (Q-6).

    Flink reads a barrier that overtakes before all data, and then puts its channel behind the others. So each
    checkpoint begins the turn anew, in the order in which the barriers came.
    """
    s = n.i[c, f.RECEIVER]
    first = n.i[s, f.INPUT_FIRST]
    room = n.i[s, f.INPUT_END] - first
    at, place = n.i[s, f.READY_HEAD], -1
    for _ in range(n.i[s, f.READY_COUNT]):
        other = n.i[first + at, f.READY_AT]
        if other == c:
            place = at
        elif place >= 0 and n.i[other, f.GATE] == n.i[c, f.GATE]:
            n.i[first + place, f.READY_AT] = other
            place = at
        at = wrapped(at + 1, room)
    if place >= 0:
        n.i[first + place, f.READY_AT] = c


@compiled
def is_readable(n: Sim, c: int) -> bool:
    """Return whether the sender's queue has something that may be read: nothing before a barrier that overtakes it."""
    if n.i[c, f.BLOCKED] or n.i[c, f.OVERTAKEN]:
        return False
    return n.i[c, f.LENGTH] > 0 or n.i[c, f.FLUSHED] > 0


@compiled
def notify(n: Sim, c: int) -> None:
    """Tell the channel's receiver, or its link, that there may be something to read."""
    if n.i[c, f.REMOTE]:
        send(n, c)
    elif is_readable(n, c):
        on_ready(n, c)


@compiled
def take_first(n: Sim, c: int) -> float:
    """Remove the first buffer or barrier of the sender's queue, and return it. A barrier that blocks stops it (Q-3).

    If there is only a flushed buffer, what it contains is read, and the sender continues to fill the rest of it.
    """
    n.i[c, f.IS_PART] = 0
    if n.i[c, f.LENGTH] == 0:
        part = n.v[c, f.FILLED]
        n.i[c, f.IS_PART] = 1
        n.i[c, f.FLUSHED] = 0
        n.v[c, f.FILLED] = 0.0
        n.v[c, f.LIMIT] -= part
        n.v[c, f.QUEUED] -= part
        return part
    head = n.i[c, f.HEAD]
    item = n.v[c, f.QUEUE + head]
    n.i[c, f.HEAD] = wrapped(head + 1, n.i[0, f.ROOM])
    n.i[c, f.LENGTH] -= 1
    if item > 0:
        n.i[c, f.DATA_COUNT] -= 1
        n.v[c, f.QUEUED] -= item
        if n.i[c, f.WAITING_BARRIER] > 0:
            leave_front(n, n.i[c, f.SENDER], item)
        return item
    k = int(-item) >> 2
    if is_over(n, n.i[c, f.RECEIVER], k):
        return item
    mode = n.i[0, f.MODE]
    if mode != f.AT_LEAST_ONCE and not (mode == f.CAPPED and int(-item) & 3 == f.TIMEOUTABLE):
        n.i[c, f.BLOCKED] = 1
    if n.i[c, f.WAITING_BARRIER] == k:
        n.i[c, f.WAITING_BARRIER] = 0
        s = n.i[c, f.SENDER]
        n.i[s, f.OUTPUTS_WAIT] -= 1
        acknowledge(n, s, k)
    return item


@compiled
def leave_front(n: Sim, s: int, size: float) -> None:
    """Note that output in front of a waiting barrier has left. The barriers overtake once the rest fits (CAP-3)."""
    before = n.v[s, f.OUTPUT_FRONT]
    n.v[s, f.OUTPUT_FRONT] = before - size
    if n.i[0, f.MODE] == f.CAPPED and before - size <= n.v[0, f.CAP] < before:
        push(n, n.v[0, f.NOW], f.OUTPUT_TIMER, s, n.i[s, f.STARTED])


@compiled
def overtake(n: Sim, c: int, k: int, before: int) -> None:
    """Send a barrier past the data of the channel (UC-4). The data is read after it, or it would be persisted twice.

    The subtask has sent its barrier to ``before`` other channels first.
    """
    n.i[c, f.OVERTAKEN] = k
    late = n.v[0, f.BARRIER_COST] * (before + f.WAKE_SPREAD * draw(n))
    push(n, n.v[0, f.NOW] + late + (n.v[0, f.HOP] if n.i[c, f.REMOTE] else 0.0), f.PRIORITY, c, k)


@compiled
def send(n: Sim, c: int) -> None:
    """Send buffers to a remote receiver, one for each of its free buffers (CR-1, CR-5). Barriers need none (CR-3)."""
    room = n.i[0, f.REMOTE_ROOM]
    while is_readable(n, c):
        is_event = n.i[c, f.LENGTH] > 0 and n.v[c, f.QUEUE + n.i[c, f.HEAD]] < 0
        if not is_event and n.i[c, f.EXCLUSIVE_FREE] + n.i[c, f.FLOATING_HELD] == 0:
            if n.i[0, f.EXCLUSIVE] == 0:
                n.i[c, f.REQUIRED] = n.i[c, f.DATA_COUNT] + 1
                grow(n, c)
                if n.i[c, f.FLOATING_HELD] > 0:
                    continue
            return
        item = take_first(n, c)
        s = n.i[c, f.RECEIVER]
        k = int(-item) >> 2
        if item < 0 and n.i[0, f.MODE] == f.ALIGNED_TIMEOUT and int(-item) & 3 == f.TIMEOUTABLE:
            if n.i[s, f.SWITCHED] == k:
                # The receiver has switched already, so that the announced barrier overtakes at once.
                n.i[c, f.BLOCKED] = 0
                push(n, n.v[0, f.NOW], f.PRIORITY, c, k)
                continue
            if n.i[s, f.CHECKPOINT] < k:
                push(n, switch_time(n, k), f.INPUT_TIMER, s, k)
        if item < 0 and n.i[0, f.MODE] == f.CAPPED and int(-item) & 3 == f.TIMEOUTABLE:
            # The barrier has left in its place. It overtakes what the receiver has queued.
            overtake(n, c, k, 0)
            continue
        length = n.i[c, f.REMOTE_LENGTH]
        at = wrapped(n.i[c, f.REMOTE_HEAD] + length, room)
        if length == room:
            raise NoPlaceError("a receiver's queue of its fast simulation is full")
        n.v[c, n.i[0, f.REMOTE_AT] + at] = item
        n.i[c, f.REMOTE_LENGTH] = length + 1
        if item > 0:
            if n.i[c, f.FLOATING_HELD] > 0:
                n.i[c, f.FLOATING_HELD] -= 1
                n.i[c, f.SLOTS + at] = f.FLOATING_ONE
            else:
                n.i[c, f.EXCLUSIVE_FREE] -= 1
                n.i[c, f.SLOTS + at] = f.OWN
            n.v[c, f.REMOTE_BYTES] += item
            n.v[c, f.RECEIVED] += item
            copy(n, s, c, item)
            n.i[c, f.REQUIRED] = n.i[c, f.DATA_COUNT] + n.i[0, f.EXCLUSIVE]
            grow(n, c)
            if not n.i[c, f.IS_PART]:
                give_back(n, c)
        on_ready(n, c)


@compiled
def grow(n: Sim, c: int) -> None:
    """Take floating buffers for the channel while it needs some and the gate has some (CR-2)."""
    g = n.i[c, f.GATE]
    while n.i[c, f.EXCLUSIVE_FREE] + n.i[c, f.FLOATING_HELD] < n.i[c, f.REQUIRED]:
        if n.i[g, f.FLOATING] == 0:
            n.i[c, f.WAITS] = 1
            return
        n.i[g, f.FLOATING] -= 1
        n.i[c, f.FLOATING_HELD] += 1


@compiled
def recycle(n: Sim, c: int, slot: int) -> None:
    """Free the buffer that the receiver has processed. A floating one goes to a channel that waits for one (CR-2)."""
    if not n.i[c, f.REMOTE]:
        if slot != f.PART:
            give_back(n, c)
        return
    g = n.i[c, f.GATE]
    is_floating = slot == f.FLOATING_ONE
    if not is_floating:
        n.i[c, f.EXCLUSIVE_FREE] += 1
        free = n.i[c, f.EXCLUSIVE_FREE] + n.i[c, f.FLOATING_HELD]
        if free > n.i[c, f.REQUIRED] and n.i[c, f.FLOATING_HELD] > 0:
            n.i[c, f.FLOATING_HELD] -= 1
            is_floating = True
        send(n, c)
    if is_floating:
        n.i[g, f.FLOATING] += 1
        first, end = n.i[g, f.FIRST], n.i[g, f.END]
        begin = int(draw(n) * (end - first))
        for i in range(end - first):
            other = n.i[first + wrapped(begin + i, end - first), f.INPUT]
            if n.i[other, f.WAITS]:
                n.i[other, f.WAITS] = 0
                grow(n, other)
                send(n, other)
                if n.i[g, f.FLOATING] == 0:
                    return


@compiled
def append(n: Sim, c: int, size: float) -> None:
    """Write ``size`` bytes into the channel's buffers (BUF-1). A flush follows at the writer's own times (BUF-2)."""
    p = n.i[c, f.POOL]
    n.v[c, f.QUEUED] += size
    while size > 0:
        if not n.i[c, f.HAS_BUILDER]:
            n.i[c, f.HAS_BUILDER] = 1
            n.v[c, f.LIMIT] = n.v[c, f.BUFFER]
            n.i[p, f.REQUESTED] += 1
            n.i[c, f.IN_USE] += 1
            if n.i[c, f.IN_USE] == n.i[0, f.BUFFERS_MAX]:
                n.i[p, f.FULL] += 1
        if not n.i[p, f.FLUSH_DUE]:
            n.i[p, f.FLUSH_DUE] = 1
            every, phase = n.v[0, f.FLUSH_EVERY], n.v[p, f.PHASE]
            at = (math.floor((n.v[0, f.NOW] - phase) / every) + 1) * every + phase
            push(n, at, f.FLUSH, p, 0)
        part = min(size, n.v[c, f.LIMIT] - n.v[c, f.FILLED])
        n.v[c, f.FILLED] += part
        size -= part
        if n.v[c, f.FILLED] >= n.v[c, f.LIMIT] - 1e-6:
            finish(n, c)
            notify(n, c)
        if size < 1e-6:
            return


@compiled
def emit(n: Sim, p: int, size: float) -> None:
    """Write output of one pool: choose a channel for each of its parts, by the partitioner (PT-1)."""
    step = n.v[p, f.STEP_OUT]
    left = n.v[p, f.LEFT_OVER] + size
    first, end = n.i[p, f.FIRST], n.i[p, f.END]
    routing = n.i[p, f.ROUTING]
    while left >= step - 1e-6:
        left -= step
        if routing == f.TO_ALL:
            for c in range(first, end):
                append(n, c, step)
            continue
        if end - first == 1:
            append(n, first, step)
            continue
        if routing == f.IN_TURN:
            c = first + n.i[p, f.NEXT]
            n.i[p, f.NEXT] = wrapped(n.i[p, f.NEXT] + 1, end - first)
        elif draw(n) < n.v[p, f.CHANCE]:
            c, sought = first, draw(n)
            while c < end - 1 and sought > n.w[c, f.WEIGHT]:
                sought -= n.w[c, f.WEIGHT]
                c += 1
        else:
            # The channel that is furthest behind its share. Drawing all parts would make the load more uneven than
            # that of single records.
            c, most = first, -1e300
            for each in range(first, end):
                behind = n.w[each, f.DEFICIT] + n.w[each, f.WEIGHT]
                n.w[each, f.DEFICIT] = behind
                if behind > most:
                    c, most = each, behind
            n.w[c, f.DEFICIT] -= 1.0
        append(n, c, step)
    n.v[p, f.LEFT_OVER] = max(left, 0.0)


@compiled
def poll(n: Sim, s: int) -> int:
    """Take the next buffer or barrier of the subtask's input. Return 0 for nothing, 1 for a buffer, 2 for a barrier.

    The channel is then in CURRENT, and the size of the buffer or the barrier in LEFT.
    """
    first = n.i[s, f.INPUT_FIRST]
    room = n.i[s, f.INPUT_END] - first
    while n.i[s, f.READY_COUNT] > 0:
        head = n.i[s, f.READY_HEAD]
        c = n.i[first + head, f.READY_AT]
        n.i[s, f.READY_HEAD] = wrapped(head + 1, room)
        n.i[s, f.READY_COUNT] -= 1
        n.i[c, f.READY] = 0
        if n.i[c, f.CLOSED] and n.v[c, f.FRONT] < 1e-6:
            continue
        slot = f.OWN
        if n.i[c, f.REMOTE]:
            if n.i[c, f.REMOTE_LENGTH] == 0:
                continue
            at = n.i[c, f.REMOTE_HEAD]
            item, slot = n.v[c, n.i[0, f.REMOTE_AT] + at], n.i[c, f.SLOTS + at]
            n.i[c, f.REMOTE_HEAD] = wrapped(at + 1, n.i[0, f.REMOTE_ROOM])
            n.i[c, f.REMOTE_LENGTH] -= 1
            if item > 0:
                n.v[c, f.REMOTE_BYTES] -= item
                n.v[c, f.FRONT] = max(0.0, n.v[c, f.FRONT] - item)
            if n.i[c, f.REMOTE_LENGTH] > 0:
                on_ready(n, c)
        else:
            if not is_readable(n, c):
                continue
            item = take_first(n, c)
            if n.i[c, f.IS_PART]:
                slot = f.PART
            if item > 0:
                n.v[c, f.RECEIVED] += item
                copy(n, s, c, item)
            if is_readable(n, c):
                on_ready(n, c)
        n.i[s, f.CURRENT] = c
        n.i[s, f.SLOT] = slot
        n.v[s, f.LEFT] = item
        return 1 if item > 0 else 2
    return 0


@compiled
def resume(n: Sim, c: int) -> None:
    """Let a blocked or closed channel be read again."""
    n.i[c, f.CLOSED] = 0
    if n.i[c, f.BLOCKED]:
        n.i[c, f.BLOCKED] = 0
        notify(n, c)
    elif (n.i[c, f.REMOTE] and n.i[c, f.REMOTE_LENGTH] > 0) or (not n.i[c, f.REMOTE] and is_readable(n, c)):
        on_ready(n, c)
