"""The fast tier's heap of events, its random numbers, and the steps of subtasks. Compiled by numba."""

from __future__ import annotations

from typing import Any

from numba import njit

from backend.advisor.twin.fast import fields as f
from backend.advisor.twin.fast.fields import Sim

# Without NRT, numba counts no references to the arrays, which took half of the time. No function creates an array.
_OPTIONS: dict[str, Any] = {"cache": True, "error_model": "numpy", "nogil": True, "_nrt": False}
compiled = njit(**_OPTIONS)


@compiled
def copy_event(n: Sim, i: int, to: int) -> None:
    """Copy an event within the heap."""
    for column in range(5):
        n.e[to, column] = n.e[i, column]


@compiled
def push(n: Sim, at: float, kind: int, a: int, b: int) -> int:
    """Add an event to the heap, and return its sequence number."""
    i = n.i[0, f.EVENTS]
    n.i[0, f.EVENTS] = i + 1
    n.i[0, f.SEQUENCE] += 1
    sequence = n.i[0, f.SEQUENCE]
    while i > 0:
        parent = (i - 1) >> 1
        if n.e[parent, 0] <= at:
            # Events of one time run in the order in which they were added.
            break
        copy_event(n, parent, i)
        i = parent
    n.e[i, 0], n.e[i, 1], n.e[i, 2], n.e[i, 3], n.e[i, 4] = at, sequence, kind, a, b
    return sequence


@compiled
def drop_first(n: Sim) -> None:
    """Remove the first event of the heap."""
    size = n.i[0, f.EVENTS] - 1
    n.i[0, f.EVENTS] = size
    at, sequence = n.e[size, 0], n.e[size, 1]
    i = 0
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        if child + 1 < size:
            left, right = n.e[child, 0], n.e[child + 1, 0]
            if right < left or (right == left and n.e[child + 1, 1] < n.e[child, 1]):
                child += 1
        if at < n.e[child, 0] or (at == n.e[child, 0] and sequence < n.e[child, 1]):
            break
        copy_event(n, child, i)
        i = child
    copy_event(n, size, i)


@compiled
def wrapped(at: int, room: int) -> int:
    """Return a place in a ring of ``room`` places, at most one turn behind ``at``. A division takes longer."""
    return at - room if at >= room else at


@compiled
def draw(n: Sim) -> float:
    """Return the next random number in (0, 1]."""
    x = n.i[0, f.RANDOM]
    x ^= (x << 13) & 0xFFFFFFFF
    x ^= x >> 17
    x ^= (x << 5) & 0xFFFFFFFF
    n.i[0, f.RANDOM] = x
    return x / 4294967296.0


@compiled
def settle_idle(n: Sim, s: int) -> None:
    """Add the time without input up to now."""
    if n.i[s, f.ACTIVITY] == f.IDLE:
        n.v[s, f.IDLE_TIME] += n.v[0, f.NOW] - n.v[s, f.IDLE_SINCE]
        n.v[s, f.IDLE_SINCE] = n.v[0, f.NOW]


@compiled
def turn(n: Sim, s: int, activity: int) -> None:
    """Record what the subtask does from now on."""
    settle_idle(n, s)
    n.v[s, f.IDLE_SINCE] = n.v[0, f.NOW]
    n.i[s, f.ACTIVITY] = activity


@compiled
def leaf_of(n: Sim, s: int) -> int:
    """Return the subtask's place in the tree of steps."""
    return n.s.shape[0] // 2 + s - n.i[0, f.FIRST_TASK]


@compiled
def schedule(n: Sim, s: int, at: float) -> None:
    """Replace the subtask's next step by one at ``at``; none if that is infinite.

    The steps are the leaves of a tree in which each node is the earlier one of its two children. Most events are steps,
    and a subtask has one at most, so this is quicker than the heap.
    """
    n.i[0, f.SEQUENCE] += 1
    sequence = float(n.i[0, f.SEQUENCE])
    node = leaf_of(n, s)
    n.s[node, 0], n.s[node, 1], n.s[node, 2] = at, sequence, s
    while node > 1:
        other = node ^ 1
        better = node
        if n.s[other, 0] < n.s[node, 0] or (n.s[other, 0] == n.s[node, 0] and n.s[other, 1] < n.s[node, 1]):
            better = other
        node >>= 1
        n.s[node, 0], n.s[node, 1], n.s[node, 2] = n.s[better, 0], n.s[better, 1], n.s[better, 2]


@compiled
def has_output(n: Sim, s: int) -> bool:
    """Return whether every pool of the subtask has a free buffer and no full channel (MB-3, BUF-4)."""
    for p in range(n.i[s, f.POOL_FIRST], n.i[s, f.POOL_END]):
        if n.i[p, f.REQUESTED] >= n.i[p, f.SIZE] or n.i[p, f.FULL] > 0:
            return False
    return True


@compiled
def wake(n: Sim, s: int) -> None:
    """Let a waiting subtask take its next step now."""
    turn(n, s, f.BUSY)
    schedule(n, s, max(n.v[0, f.NOW], n.v[s, f.FREE_AT]))


@compiled
def occupy(n: Sim, s: int, cost: float) -> None:
    """Let the subtask work ``cost`` longer than it would."""
    if cost <= 0:
        return
    free_at = max(n.v[0, f.NOW], n.v[s, f.FREE_AT]) + cost
    n.v[s, f.FREE_AT] = free_at
    turn(n, s, f.BUSY)
    schedule(n, s, free_at)
