"""The fast tier's checkpoints at a subtask: barriers, alignment, in-flight data, sync part. Compiled by numba.

Each kind of checkpoint does what the protocol of this kind does in ``backend/runtime/protocols``. A barrier has an
exact position in its queue. If it overtakes, it takes ``HOP`` longer to another task manager than within one.
"""

from __future__ import annotations

import math

from backend.advisor.twin.fast import fields as f
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
from backend.advisor.twin.fast.events import compiled, occupy, push
from backend.advisor.twin.fast.fields import Sim


@compiled
def input_done(n: Sim, s: int, k: int) -> None:
    """End the checkpoint at the subtask's input: all barriers have arrived (AL-4, UC-5)."""
    aligned_for = n.v[0, f.NOW] - n.v[s, f.FIRST_BARRIER]
    n.v[k, f.ALIGNMENT] = max(n.v[k, f.ALIGNMENT], aligned_for)
    n.i[s, f.INPUT_OPEN] = 0
    n.i[s, f.PERSISTING] = 0
    n.i[s, f.DONE] = k
    n.i[s, f.CAP_WAITS] = 0
    for i in range(n.i[s, f.INPUT_FIRST], n.i[s, f.INPUT_END]):
        c = n.i[i, f.INPUT]
        if n.i[c, f.BLOCKED] and n.i[c, f.ARRIVED] < k:
            # The barrier is still queued at the remote receiver.
            continue
        if n.i[c, f.BLOCKED] or n.i[c, f.CLOSED]:
            resume(n, c)
    acknowledge(n, s, k)


@compiled
def snapshot(n: Sim, s: int, k: int, kind: int) -> None:
    """Forward the barrier as ``kind`` (TE-3), and start the sync part (TE-6).

    An edge that cannot be overtaken gets a barrier in the queue (OPT-5).
    """
    now = n.v[0, f.NOW]
    n.i[s, f.STARTED] = k
    n.i[s, f.IS_SYNCED] = 0
    n.i[s, f.OUTPUTS_WAIT] = 0
    n.v[s, f.OUTPUT_FRONT] = 0.0
    sent = 0
    for p in range(n.i[s, f.POOL_FIRST], n.i[s, f.POOL_END]):
        as_kind = kind
        if not n.i[p, f.CAN_OVERTAKE] and kind != f.IN_ORDER:
            as_kind = f.FORCED
        if as_kind == f.OVERTAKING:
            n.v[s, f.PERSISTED] += n.v[p, f.LEFT_OVER]
        for c in range(n.i[p, f.FIRST], n.i[p, f.END]):
            finish(n, c)
            if as_kind == f.OVERTAKING:
                n.v[s, f.PERSISTED] += n.v[c, f.QUEUED]
                overtake(n, c, k, sent)
                sent += 1
                continue
            if as_kind == f.TIMEOUTABLE:
                n.i[c, f.WAITING_BARRIER] = k
                n.i[s, f.OUTPUTS_WAIT] += 1
                n.v[s, f.OUTPUT_FRONT] += n.v[c, f.QUEUED]
            enqueue(n, c, -(4.0 * k + as_kind))
    for p in range(n.i[s, f.POOL_FIRST], n.i[s, f.POOL_END]):
        for c in range(n.i[p, f.FIRST], n.i[p, f.END]):
            notify(n, c)
    if n.i[s, f.OUTPUTS_WAIT] > 0 and n.i[0, f.MODE] == f.ALIGNED_TIMEOUT:
        push(n, switch_time(n, k), f.OUTPUT_TIMER, s, k)
    pause = n.v[s, f.SYNC]
    n.v[k, f.PAUSE] = max(n.v[k, f.PAUSE], pause)
    n.v[s, f.NO_MAIL_UNTIL] = max(n.v[s, f.NO_MAIL_UNTIL], now + pause)
    push(n, now + pause, f.SYNCED, s, k)
    occupy(n, s, pause)


@compiled
def start_unaligned(n: Sim, s: int, k: int) -> None:
    """Persist the queued input, let the barrier overtake the queued output, and start the sync part (UC-2)."""
    n.v[s, f.PERSISTED] += received_bytes(n, s)
    n.i[s, f.PERSISTING] = k
    snapshot(n, s, k, f.OVERTAKING)


@compiled
def received_bytes(n: Sim, s: int) -> float:
    """Return the bytes that the subtask has received and not processed."""
    total = 0.0
    if n.i[s, f.CURRENT] >= 0:
        total = n.v[s, f.LEFT]
        rest = n.v[s, f.FREE_AT] - n.v[0, f.NOW]
        if n.i[s, f.POOL_FIRST] == n.i[s, f.POOL_END] and rest > 0 and n.v[s, f.SERVICE] > 0:
            # Whole records of the step have not begun. Other subtasks have emitted their output already.
            total += math.floor(rest / n.v[s, f.SERVICE] + 1e-6) * n.v[n.i[s, f.CURRENT], f.RECORD]
    for i in range(n.i[s, f.INPUT_FIRST], n.i[s, f.INPUT_END]):
        total += n.v[n.i[i, f.INPUT], f.REMOTE_BYTES]
    return total


@compiled
def switch(n: Sim, s: int, k: int) -> None:
    """Make the checkpoint unaligned at this subtask: announced barriers overtake (AT-2 to AT-4)."""
    n.i[s, f.SWITCHED] = k
    if n.i[s, f.CHECKPOINT] == k and n.i[s, f.ARRIVALS] > 0:
        start_unaligned(n, s, k)
    room = n.i[0, f.REMOTE_ROOM]
    for i in range(n.i[s, f.INPUT_FIRST], n.i[s, f.INPUT_END]):
        c = n.i[i, f.INPUT]
        if not n.i[c, f.REMOTE] or n.i[c, f.ARRIVED] >= k:
            continue
        # A sender waits behind its blocking barrier, so the barrier is the last in the receiver's queue.
        length = n.i[c, f.REMOTE_LENGTH]
        if length == 0:
            continue
        if n.v[c, n.i[0, f.REMOTE_AT] + (n.i[c, f.REMOTE_HEAD] + length - 1) % room] == -(4.0 * k + f.TIMEOUTABLE):
            n.i[c, f.REMOTE_LENGTH] = length - 1
            n.i[c, f.BLOCKED] = 0
            push(n, n.v[0, f.NOW], f.PRIORITY, c, k)
            send(n, c)


@compiled
def check_cap(n: Sim, s: int, k: int) -> None:
    """Take the snapshot of a capped checkpoint if what it persists fits or its input is processed (CAP-1 to CAP-3)."""
    if n.i[s, f.ARRIVALS] < n.i[s, f.INPUT_END] - n.i[s, f.INPUT_FIRST] or n.i[s, f.STARTED] == k:
        return
    in_front = n.v[s, f.LEFT] if n.i[s, f.CURRENT] >= 0 else 0.0
    for i in range(n.i[s, f.INPUT_FIRST], n.i[s, f.INPUT_END]):
        in_front += n.v[n.i[i, f.INPUT], f.FRONT]
    if in_front + output_bytes(n, s) <= n.v[0, f.CAP]:
        n.v[s, f.PERSISTED] += in_front
        snapshot(n, s, k, f.OVERTAKING)
    elif in_front < 1e-6:
        snapshot(n, s, k, over_cap(n, s))
    else:
        n.i[s, f.CAP_WAITS] = 1
        return
    input_done(n, s, k)


@compiled
def over_cap(n: Sim, s: int) -> int:
    """Return the kind of barrier that a subtask forwards if its output exceeds the cap (CAP-3).

    The barrier may overtake later, unless the beginnings of records at a receiver could exceed the cap.
    """
    for p in range(n.i[s, f.POOL_FIRST], n.i[s, f.POOL_END]):
        receiver, begun = n.i[n.i[p, f.FIRST], f.RECEIVER], 0.0
        for i in range(n.i[receiver, f.INPUT_FIRST], n.i[receiver, f.INPUT_END]):
            begun += n.v[n.i[i, f.INPUT], f.RECORD]
        if begun > n.v[0, f.CAP]:
            return f.IN_ORDER
    return f.TIMEOUTABLE


@compiled
def output_bytes(n: Sim, s: int) -> float:
    """Return the queued output that a barrier could overtake."""
    total = 0.0
    for p in range(n.i[s, f.POOL_FIRST], n.i[s, f.POOL_END]):
        if n.i[p, f.CAN_OVERTAKE]:
            for c in range(n.i[p, f.FIRST], n.i[p, f.END]):
                total += n.v[c, f.QUEUED]
    return total


@compiled
def begin(n: Sim, s: int, k: int) -> None:
    """Note the first sign of a checkpoint at the subtask (AL-3, UC-1)."""
    now = n.v[0, f.NOW]
    n.i[s, f.CHECKPOINT] = k
    n.i[s, f.ARRIVALS] = 0
    n.i[s, f.INPUT_OPEN] = 1
    n.v[s, f.FIRST_BARRIER] = now
    n.v[s, f.PERSISTED] = 0.0
    n.v[k, f.TRAVEL] = max(n.v[k, f.TRAVEL], now - n.v[k, f.TRIGGERED])
    if n.i[0, f.MODE] == f.ALIGNED_TIMEOUT and n.i[s, f.SWITCHED] != k:
        push(n, switch_time(n, k), f.INPUT_TIMER, s, k)


@compiled
def on_barrier(n: Sim, s: int, c: int, k: int, kind: int) -> None:
    """Handle a barrier that was read from a channel, or that overtook its data.

    Rules: aligned AL-1 to AL-5, at least once ALO-1, unaligned UC-1 to UC-5, aligned timeout AT-5, capped CAP-2, CAP-3.
    """
    if is_over(n, s, k):
        resume(n, c)
        return
    if n.i[s, f.CHECKPOINT] < k:
        begin(n, s, k)
    n.i[c, f.ARRIVED] = k
    n.i[s, f.ARRIVALS] += 1
    is_last = n.i[s, f.ARRIVALS] == n.i[s, f.INPUT_END] - n.i[s, f.INPUT_FIRST]
    mode = n.i[0, f.MODE]
    if mode == f.CAPPED:
        if kind == f.OVERTAKING or kind == f.TIMEOUTABLE:
            n.i[c, f.CLOSED] = 1
            n.v[c, f.FRONT] = n.v[c, f.REMOTE_BYTES]
        check_cap(n, s, k)
        return
    if mode == f.ALIGNED or mode == f.AT_LEAST_ONCE:
        if is_last:
            snapshot(n, s, k, f.IN_ORDER)
            input_done(n, s, k)
        return
    if mode == f.ALIGNED_TIMEOUT and n.i[s, f.SWITCHED] != k:
        if kind != f.OVERTAKING:
            if is_last:
                snapshot(n, s, k, f.TIMEOUTABLE)
                input_done(n, s, k)
            elif n.v[0, f.NOW] > n.v[k, f.TRIGGERED] + n.v[0, f.ALIGNED_TIMEOUT_MS]:
                switch(n, s, k)
            return
        switch(n, s, k)
    if n.i[s, f.STARTED] != k:
        start_unaligned(n, s, k)
    if is_last:
        input_done(n, s, k)


@compiled
def let_overtake(n: Sim, s: int, k: int) -> None:
    """Let the barriers that wait in the subtask's output overtake the data in front of them (AT-6, Q-5, CAP-3)."""
    room, sent = n.i[0, f.ROOM], 0
    for p in range(n.i[s, f.POOL_FIRST], n.i[s, f.POOL_END]):
        for c in range(n.i[p, f.FIRST], n.i[p, f.END]):
            if n.i[c, f.WAITING_BARRIER] != k:
                continue
            n.i[c, f.WAITING_BARRIER] = 0
            head, length = n.i[c, f.HEAD], n.i[c, f.LENGTH]
            i = 0
            while n.v[c, f.QUEUE + (head + i) % room] > 0:
                n.v[s, f.PERSISTED] += n.v[c, f.QUEUE + (head + i) % room]
                i += 1
            while i < length - 1:
                n.v[c, f.QUEUE + (head + i) % room] = n.v[c, f.QUEUE + (head + i + 1) % room]
                i += 1
            n.i[c, f.LENGTH] = length - 1
            overtake(n, c, k, sent)
            sent += 1
    n.i[s, f.OUTPUTS_WAIT] = 0
    acknowledge(n, s, k)


@compiled
def trigger(n: Sim, s: int, k: int) -> None:
    """Start the checkpoint at a source (UC-8, SRC-3)."""
    begin(n, s, k)
    n.i[s, f.INPUT_OPEN] = 0
    n.i[s, f.DONE] = k
    mode = n.i[0, f.MODE]
    kind = f.IN_ORDER
    if mode == f.UNALIGNED:
        kind = f.OVERTAKING
    elif mode == f.CAPPED:
        kind = f.OVERTAKING if output_bytes(n, s) <= n.v[0, f.CAP] else over_cap(n, s)
    elif mode == f.ALIGNED_TIMEOUT:
        kind = f.TIMEOUTABLE
    snapshot(n, s, k, kind)
