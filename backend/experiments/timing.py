"""When a task forwards a barrier: the order of the phases, and two ways to decide that it overtakes.

*phase-orders* compares the four orders on a chain of tasks with synchronous work. *overtake-unflushed* lets a barrier
overtake output that was not flushed in time. *first-barrier-timeout* counts the alignment timeout from the first
barrier at each task, not from the trigger.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from backend.experiments.measuring import (
    ALIGNED_TIMEOUT,
    CHANDY_LAMPORT,
    THREAD,
    UNALIGNED,
    Job,
    Variant,
    busy_job,
    chain_job,
    comparison,
    flowing_job,
    late,
    light_job,
)
from backend.experiments.model import Ordering, at_least, at_most, below, every

_ORDER: Final = "runtime.phase-order"
_LATE_CHAIN: Final = "chain of five, one source is late"
_SYNC_MS: Final = 20

PHASE_ORDERS: Final = comparison(
    "phase-orders",
    "The order of align (A), forward (F), snapshot (S) and log (L)",
    "A chain of five tasks with 20 ms of synchronous work each: how long the barrier takes to the last task.",
    variants={
        "A-S-F": Variant({_ORDER: "A-S-F"}),
        "A-F-S": Variant({_ORDER: "A-F-S"}),
        "S-F-L": Variant(UNALIGNED | {_ORDER: "S-F-L"}),
        "F-S-L": Variant(UNALIGNED | {_ORDER: "F-S-L"}),
    },
    jobs={_LATE_CHAIN: late(partial(chain_job, sync=f"{_SYNC_MS} ms"), delay_us=40_000)},
    measures=("at the last vertex", "duration", "persisted"),
    orderings=(
        Ordering(
            "If the state is taken first, each of the four tasks before the last one delays the barrier by its work.",
            f"{THREAD}, P. Nowojski",
            at_least("at the last vertex", _LATE_CHAIN, ("A-S-F", "S-F-L"), 4 * _SYNC_MS),
            says="every network exchange adds tens of milliseconds of delay in propagating the checkpoint",
        ),
        Ordering(
            "Forwarding first takes synchronous work off the barrier's way: at least twice as fast.",
            f"{THREAD}, P. Nowojski",
            below("at the last vertex", _LATE_CHAIN, "F-S-L", "S-F-L", times=2),
            says="It feels to me like this would decouple propagation of checkpoints from costs of synchronous"
            " snapshots and waiting for all of the checkpoint barriers to arrive",
        ),
        Ordering(
            "Logging instead of aligning takes the late source off the barrier's way, in both orders.",
            f"{THREAD}, P. Nowojski",
            every(
                below("at the last vertex", _LATE_CHAIN, "S-F-L", "A-S-F"),
                below("at the last vertex", _LATE_CHAIN, "F-S-L", "A-F-S"),
            ),
            says="It feels to me like this would decouple propagation of checkpoints from costs of synchronous"
            " snapshots and waiting for all of the checkpoint barriers to arrive",
        ),
        Ordering(
            "An aligned task that forwards before it takes its state is faster than one that takes its state first.",
            f"{THREAD}, S. Ewen",
            below("at the last vertex", _LATE_CHAIN, "A-F-S", "A-S-F"),
            says="Quick note: The current implementation is Align -> Forward -> Sync Snapshot Part (-> Async Snapshot"
            " Part)",
        ),
    ),
)


_CLOCKS: Final[dict[str, Job]] = {"light load": light_job, "flowing": flowing_job, "backpressure": busy_job}
_NEVER: Final = UNALIGNED | {ALIGNED_TIMEOUT: "1 h"}
_HOP: Final = "overtake after 10 ms"

OVERTAKE_UNFLUSHED: Final = comparison(
    "overtake-unflushed",
    "Barriers that overtake output that is not flushed within 10 ms",
    "What is stored and how long checkpoints take, as the load grows until all channels are full.",
    variants={
        "aligned": Variant(),
        _HOP: Variant(_NEVER | {"runtime.overtake-unflushed": "10 ms"}),
        "unaligned": Variant(UNALIGNED),
        "chandy-lamport": Variant(CHANDY_LAMPORT),
    },
    jobs=_CLOCKS,
    measures=("duration", "persisted"),
    orderings=(
        Ordering(
            "Under light load, nothing in flight is stored.",
            f"{THREAD}, S. Ewen, (2)",
            at_most("persisted", "light load", (_HOP,), 0),
            says="checkpoints are in the common case of flowing pipelines aligned without in-flight data",
        ),
        Ordering(
            "Nothing in flight is stored either if records wait although no channel is full, at 60 % load.",
            f"{THREAD}, S. Ewen, (2)",
            at_most("persisted", "flowing", (_HOP,), 0),
            "A buffer of records that takes the sink longer than 10 ms makes the barrier behind it overtake, although"
            " the job keeps up. The time has to be longer than a few buffers take.",
            says="Only back pressured cases store some in-flight data",
        ),
        Ordering(
            "Under backpressure, the checkpoint is at least five times shorter than an aligned one.",
            f"{THREAD}, S. Ewen, (2)",
            below("duration", "backpressure", _HOP, "aligned", times=5),
            says="we don't regress in the common case and only fix the back pressure case",
        ),
        Ordering(
            "Less is stored than by Chandy-Lamport while the job keeps up.",
            f"{THREAD}, S. Ewen, (2)",
            below("persisted", "light load", _HOP, "chandy-lamport"),
            says="Less data stored.",
        ),
        Ordering(
            "Less is stored than by Chandy-Lamport under backpressure too.",
            f"{THREAD}, S. Ewen, (2)",
            below("persisted", "backpressure", _HOP, "chandy-lamport"),
            "Overtaking stores everything that is queued at senders and receivers. Markers keep their place, so a task"
            " stores only what comes in between its first and its last marker.",
            says="Less data stored.",
        ),
    ),
)

_LIMIT: Final = UNALIGNED | {ALIGNED_TIMEOUT: "25 ms"}
_FROM_TRIGGER, _FROM_FIRST = "25 ms from the trigger", "25 ms from the first barrier"

FIRST_BARRIER_TIMEOUT: Final = comparison(
    "first-barrier-timeout",
    "The alignment timeout, counted from the trigger or from the first barrier at each task",
    "How much input is stored, and how long checkpoints take, as the load grows until all channels are full.",
    variants={
        "aligned": Variant(),
        _FROM_TRIGGER: Variant(_LIMIT),
        _FROM_FIRST: Variant(_LIMIT | {"runtime.align-after-first-barrier": True}),
        "unaligned": Variant(UNALIGNED),
    },
    jobs=_CLOCKS,
    measures=("duration", "persisted input", "persisted"),
    orderings=(
        Ordering(
            "Under light load, the channels drain within the timeout, and no input is stored.",
            f"{THREAD}, Y. Gao",
            at_most("persisted input", "light load", (_FROM_FIRST,), 0),
            says="we should allow a configurable timeout after receiving the first barrier so that the channels may"
            ' get "drained" during the timeout',
        ),
        Ordering(
            "While the job keeps up, less input is stored than without a timeout.",
            f"{THREAD}, Y. Gao",
            every(*(below("persisted input", load, _FROM_FIRST, "unaligned") for load in ("light load", "flowing"))),
            says="not need to snapshot the input buffers",
        ),
        Ordering(
            "Under backpressure, less than half of the input is stored, too.",
            f"{THREAD}, Y. Gao",
            below("persisted input", "backpressure", _FROM_FIRST, "unaligned", times=2),
            "Under backpressure, 25 ms are enough for a dozen records of the sink, and the channels hold far more. The"
            " timeout only delays the checkpoint then.",
            says="not need to snapshot the input buffers",
        ),
        Ordering(
            "A clock that starts at each task stores at most as much as one that starts with the trigger.",
            f"{THREAD}, Y. Gao",
            every(*(below("persisted", load, _FROM_FIRST, _FROM_TRIGGER, or_equal=True) for load in _CLOCKS)),
            says="similar to the current aligned checkpoint mechanism",
        ),
    ),
)
