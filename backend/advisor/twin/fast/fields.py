"""The state of the fast tier's simulation: arrays that compiled code can change, and the names of their columns.

Times are in milliseconds, sizes in bytes, flags 0 or 1. Subtasks are numbered over all vertices, channels over all
edges; the channels of a pool have consecutive numbers. A pool is the output of one subtask over one edge, and a gate
its input over one edge. Compiled code reads a column's name as a constant.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Kinds of checkpoints.
ALIGNED, AT_LEAST_ONCE, UNALIGNED, ALIGNED_TIMEOUT, CAPPED = range(5)
# Kinds of barriers: in the queue and blocking, in the queue until a timeout or until the data in front fits the cap,
# overtaking, and in the queue because the edge does not let barriers overtake.
IN_ORDER, TIMEOUTABLE, OVERTAKING, FORCED = range(4)
# How a pool chooses the channel of its next output.
SHARES, IN_TURN, TO_ALL = range(3)
# What a subtask does: waits for input, works, or waits for an output buffer.
IDLE, BUSY, NO_OUTPUT = range(3)
# The buffer that a subtask processes: one of the channel's own, a floating one, or a part of the sender's current one.
OWN, FLOATING_ONE, PART = range(3)
# The state of a checkpoint.
PENDING, COMPLETED, EXPIRED = range(3)
# Events.
FLUSH, TRIGGER, PRIORITY, INPUT_TIMER, OUTPUT_TIMER, SYNCED, ACK, TICK, EXPIRE, CALLBACK, DEBLOAT, RECHECK = range(12)
MAIL = 16
"""Added to the kind of a message to a subtask, once the subtask can handle it."""

# Row 0 of both arrays: the settings, single values of the state, and which rows hold what.
(MODE, CONCURRENT, EXCLUSIVE, BUFFERS_MAX, OVERDRAFT, EVENTS, SEQUENCE, RANDOM, ACTIVE, TICKS, TAKEN, ENDED, STEPS,
 TICK_ROUND, ROOM, REMOTE_ROOM, REMOTE_AT, END_CHANNEL, FIRST_TASK, END_TASK, FIRST_GATE,
 END_GATE, STORE_SHARED) = range(23)  # fmt: skip
(ALIGNED_TIMEOUT_MS, CAP, INTERVAL, MIN_PAUSE, TIMEOUT, SEGMENT, FLUSH_EVERY, DEBLOAT_TARGET, TRIGGER_MID, TRIGGER_LOW,
 TRIGGER_HIGH, HOP, BARRIER_COST, STORE_RATE, STORE_LATENCY, STORE_NOISE, NOW, STORE_FREE,
 LAST_COMPLETION, SEGMENT_MIN, DEBLOAT_PERIOD, DEBLOAT_SAMPLES, DEBLOAT_THRESHOLD) = range(23)  # fmt: skip

# Channels. INPUT and READY_AT are tables of all channels, which have the channels' rows but another order: INPUT lists
# the channels of each receiver, gate by gate, and READY_AT has at the same rows a ring of those that can be read.
# SLOTS is the first of the columns that say whether a receive buffer is a floating one. IS_PART says that the last read
# took a part of the current buffer, whose segment the sender keeps.
(SENDER, RECEIVER, POOL, GATE, REMOTE, HEAD, LENGTH, HAS_BUILDER, FLUSHED, IN_USE, BLOCKED, READY, CLOSED, ARRIVED,
 WAITING_BARRIER, DATA_COUNT, REMOTE_HEAD, REMOTE_LENGTH, EXCLUSIVE_FREE, FLOATING_HELD, REQUIRED, WAITS, INPUT,
 READY_AT, OVERTAKEN, IS_PART, SLOTS) = range(27)  # fmt: skip
# Bytes: queued at the sender, in its current buffer, the limit of this buffer, the size of new buffers, in front of the
# cut, received, and at the remote receiver. QUEUE is the first column of the sender's ring of buffers, and the column
# REMOTE_AT that of the receiver's. A barrier in a ring is minus (4 times its checkpoint plus its kind).
QUEUED, FILLED, LIMIT, BUFFER, FRONT, RECEIVED, REMOTE_BYTES, RECORD, STEP_BYTES, QUEUE = range(10)
# The share of its pool's output that a channel gets, and how far it is behind this share, in parts.
WEIGHT, DEFICIT = range(2)

# Pools. OUTPUT is the bytes for one input record, STEP_OUT the bytes that go to a channel at once, and CHANCE the share
# of these steps whose channel is drawn (the others keep the channels' shares). IS_LARGE says that the output of one
# record may need more buffers than a subtask gets in the middle of a record.
OWNER, FIRST, END, SIZE, ROUTING, CAN_OVERTAKE, REQUESTED, FULL, FLUSH_DUE, NEXT, IS_LARGE = range(11)
OUTPUT, STEP_OUT, CHANCE, PHASE, LEFT_OVER = range(5)

# Gates: OWNER, FIRST and END (rows of INPUT), and the free floating buffers.
FLOATING = 3
BUFFER_SIZE, ANNOUNCED, RATE, RECEIVED_BEFORE, IDLE_BEFORE = range(5)

# Subtasks.
(SOURCE, POOL_FIRST, POOL_END, INPUT_FIRST, INPUT_END, ACTIVITY, CURRENT, SLOT, READY_HEAD, READY_COUNT,
 CHECKPOINT, DONE, SWITCHED, ARRIVALS, STARTED, INPUT_OPEN, OUTPUTS_WAIT, IS_SYNCED, CAP_WAITS,
 PERSISTING) = range(20)  # fmt: skip
(SERVICE, SYNC, ASYNC_FIXED, UPLOAD, SOURCE_RATE, SOURCE_STEP, BURST_PERIOD, BURST_RATIO, BURST_FACTOR,
 CALLBACK_PERIOD, CALLBACK_TIME, FREE_AT, RECORD_TIME, NO_MAIL_UNTIL, LEFT, IDLE_TIME, IDLE_SINCE, EMITTED,
 FIRST_BARRIER, PERSISTED, STATE_DURABLE, OUTPUT_FRONT) = range(22)  # fmt: skip

# Checkpoints.
STATUS, ACKS = range(2)
TRIGGERED, DURATION, IN_FLIGHT, TRAVEL, ALIGNMENT, PAUSE = range(6)


WAKE_SPREAD = 6.0
"""A receiver notices an overtaking barrier after a random delay, at most this many times BARRIER_COST.

In the recordings of the tuning half, the first one of two subtasks below a source saw the barrier first in 74 % of
cases with 4 subtasks, and in 91 % with 16. Both follow from this number, whatever a barrier takes.
"""


class NoPlaceError(Exception):
    """A queue of the simulation has no place left. Compiled code can raise it."""


class Sim(NamedTuple):
    """One simulation: a row for each object, with whole numbers in ``i`` and floats in ``v``.

    ``e`` is the heap of events that are no steps, a row for each: time, sequence, kind, and two arguments. ``s`` is the
    tree of the subtasks' next steps (``schedule``): time, sequence, and subtask. ``w`` has the shares of the channels,
    next to each other because every step reads those of a pool. The number of an object is its row.
    """

    i: Ints
    v: Floats
    e: Floats
    s: Floats
    w: Floats
