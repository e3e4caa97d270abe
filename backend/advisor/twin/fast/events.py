"""The fast tier's heap of events, its random numbers, and the steps of subtasks. Compiled by numba."""

from __future__ import annotations

from backend.advisor.twin.fast import kinds
from backend.advisor.twin.fast.compiling import compiled
from backend.advisor.twin.fast.tables import Sim


@compiled
def copy_event(sim: Sim, i: int, to: int) -> None:
    """Copy an event within the heap."""
    sim.events[to] = sim.events[i]


@compiled
def push(sim: Sim, at: float, kind: int, a: int, b: int) -> int:
    """Add an event to the heap, and return its sequence number."""
    i = sim.state.event_count
    sim.state.event_count = i + 1
    sim.state.sequence += 1
    sequence = sim.state.sequence
    while i > 0:
        parent = (i - 1) >> 1
        if sim.events[parent].at_ms <= at:
            # Events of one time run in the order in which they were added.
            break
        copy_event(sim, parent, i)
        i = parent
    event = sim.events[i]
    event.at_ms, event.sequence, event.kind, event.a, event.b = at, sequence, kind, a, b
    return sequence


@compiled
def drop_first(sim: Sim) -> None:
    """Remove the first event of the heap."""
    size = sim.state.event_count - 1
    sim.state.event_count = size
    at, sequence = sim.events[size].at_ms, sim.events[size].sequence
    i = 0
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        if child + 1 < size:
            left, right = sim.events[child], sim.events[child + 1]
            if right.at_ms < left.at_ms or (right.at_ms == left.at_ms and right.sequence < left.sequence):
                child += 1
        below = sim.events[child]
        if at < below.at_ms or (at == below.at_ms and sequence < below.sequence):
            break
        copy_event(sim, child, i)
        i = child
    copy_event(sim, size, i)


@compiled
def wrapped(at: int, room: int) -> int:
    """Return a place in a ring of ``room`` places, at most one turn behind ``at``. A division takes longer."""
    return at - room if at >= room else at


@compiled
def draw(sim: Sim) -> float:
    """Return the next random number in (0, 1]."""
    x = sim.state.random
    x ^= (x << 13) & 0xFFFFFFFF
    x ^= x >> 17
    x ^= (x << 5) & 0xFFFFFFFF
    sim.state.random = x
    return x / 4294967296.0


@compiled
def settle_idle(sim: Sim, s: int) -> None:
    """Add the time without input up to now."""
    task = sim.subtasks[s]
    if task.activity == kinds.IDLE:
        task.idle_ms += sim.state.now_ms - task.idle_since_ms
        task.idle_since_ms = sim.state.now_ms


@compiled
def turn(sim: Sim, s: int, activity: int) -> None:
    """Record what the subtask does from now on."""
    settle_idle(sim, s)
    task = sim.subtasks[s]
    task.idle_since_ms = sim.state.now_ms
    task.activity = activity


@compiled
def leaf_of(sim: Sim, s: int) -> int:
    """Return the subtask's place in the tree of steps."""
    return len(sim.steps) // 2 + s


@compiled
def schedule(sim: Sim, s: int, at: float) -> None:
    """Replace the subtask's next step by one at ``at``; none if that is infinite.

    The steps are the leaves of a tree in which each node is the earlier one of its two children. Most events are steps,
    and a subtask has one at most, so this is quicker than the heap.
    """
    sim.state.sequence += 1
    node = leaf_of(sim, s)
    first = sim.steps[node]
    first.at_ms, first.sequence, first.subtask = at, sim.state.sequence, s
    while node > 1:
        first, other = sim.steps[node], sim.steps[node ^ 1]
        if other.at_ms < first.at_ms or (other.at_ms == first.at_ms and other.sequence < first.sequence):
            first = other
        node >>= 1
        sim.steps[node] = first


@compiled
def has_output(sim: Sim, s: int) -> bool:
    """Return whether every pool of the subtask has a free buffer and no full channel (MB-3, BUF-4)."""
    task = sim.subtasks[s]
    for p in range(task.pool_first, task.pool_end):
        pool = sim.pools[p]
        if pool.requested >= pool.size or pool.full_channels > 0:
            return False
    return True


@compiled
def wake(sim: Sim, s: int) -> None:
    """Let a waiting subtask take its next step now."""
    turn(sim, s, kinds.BUSY)
    schedule(sim, s, max(sim.state.now_ms, sim.subtasks[s].free_at_ms))


@compiled
def occupy(sim: Sim, s: int, cost: float) -> None:
    """Let the subtask work ``cost`` longer than it would."""
    if cost <= 0:
        return
    task = sim.subtasks[s]
    free_at = max(sim.state.now_ms, task.free_at_ms) + cost
    task.free_at_ms = free_at
    turn(sim, s, kinds.BUSY)
    schedule(sim, s, free_at)
