"""The state of the fast tier's simulation: a table for each kind of object, with a row for each object.

A class names the columns of a table: a type, a unit and a meaning each. The array that compiled code reads and changes
is made from its annotations (``table``), so ``sim.channels[c].queued_bytes`` is checked by mypy, and numba reads it at
a fixed distance from the row. Times are in milliseconds and sizes in bytes.

The number of an object is its row. Subtasks are numbered over all vertices, and channels over all edges; the channels
of a pool have consecutive numbers. Checkpoints are numbered from 1: where a number of a checkpoint is kept, 0 means
none.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Protocol, TypeVar, get_type_hints, overload

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Row = TypeVar("Row", covariant=True)


class Table(Protocol[Row]):
    """An array of records: a row by its number, a column by its name."""

    @overload
    def __getitem__(self, at: int, /) -> Row: ...
    @overload
    def __getitem__(self, at: str, /) -> NDArray[Any]: ...
    @overload
    def __getitem__(self, at: slice, /) -> Table[Row]: ...
    def __setitem__(self, at: Any, to: Any, /) -> None: ...
    def __len__(self) -> int: ...


class Settings:
    """The job's settings, which do not change."""

    mode: int
    """The kind of checkpoints."""
    concurrent_max: int
    """Checkpoints that may be pending at the same time (CO-3)."""
    aligned_timeout_ms: float
    inflight_cap_bytes: float
    interval_ms: float
    min_pause_ms: float
    timeout_ms: float
    trigger_mid_ms: float
    """How long a trigger takes to a source: the middle, and the bounds below."""
    trigger_low_ms: float
    trigger_high_ms: float
    segment_bytes: float
    segment_min_bytes: float
    flush_ms: float
    """The time between two flushes of a writer (BUF-2)."""
    exclusive_buffers: int
    """Of each remote channel (CR-1)."""
    channel_buffers_max: int
    overdraft_buffers: int
    debloat_target_ms: float
    """0 without debloating."""
    debloat_period_ms: float
    debloat_samples: float
    debloat_threshold_ratio: float
    hop_ms: float
    """How much longer an overtaking barrier takes to another task manager."""
    barrier_cost_ms: float
    is_store_shared: bool
    """All subtasks share the store's speed."""
    store_bytes_per_ms: float
    store_latency_ms: float
    store_noise_ratio: float


class State:
    """What there is once."""

    now_ms: float
    event_count: int
    """The events in the heap."""
    sequence: int
    """The number of the last event or step."""
    random: int
    """The state of the random numbers, 32 bits."""
    step_count: int
    pending_count: int
    """Checkpoints that are pending."""
    ended_count: int
    last_checkpoint: int
    """The number of the last checkpoint that was triggered."""
    waiting_triggers: int
    """Checkpoints that are due and not triggered."""
    tick_round: int
    """Ticks of an earlier round are void."""
    store_free_ms: float
    """When a shared store has written all that it was given."""
    last_completion_ms: float


class Channel:
    """A channel from a subtask to a subtask."""

    sender: int
    receiver: int
    pool: int
    gate: int
    is_remote: bool
    """It connects two task managers."""
    record_bytes: float
    step_bytes: float
    """The most that its receiver processes at once."""

    queue_head: int
    """The place of the first buffer or barrier in the sender's ring, a row of ``queues``."""
    queue_length: int
    data_count: int
    """The buffers in the sender's ring, without barriers."""
    queued_bytes: float
    """In the sender's ring and its current buffer."""
    has_builder: bool
    """The sender fills a current buffer (BUF-1)."""
    is_flushed: bool
    """What the current buffer contains may be read (BUF-2)."""
    filled_bytes: float
    """In the current buffer."""
    limit_bytes: float
    """The size of the current buffer."""
    buffer_bytes: float
    """The size of new buffers."""
    buffers_in_use: int
    """Segments of the pool."""

    is_ready: bool
    """It is in the turn of its receiver (Q-6)."""
    is_blocked: bool
    """A barrier blocks it (Q-3)."""
    is_closed: bool
    """Nothing behind the cut is read (CAP-2)."""
    is_part: bool
    """The last read took a part of the current buffer, whose segment the sender keeps."""
    arrived: int
    """The last checkpoint whose barrier has arrived."""
    waiting_barrier: int
    """The checkpoint whose barrier waits in the sender's ring, and may overtake later."""
    overtaken_by: int
    """The checkpoint whose barrier is on its way past the data, which is read after it."""
    front_bytes: float
    """At the remote receiver, in front of the cut."""
    received_bytes: float
    """In total."""

    remote_head: int
    """The place of the first buffer or barrier in the receiver's ring, a row of ``remote_queues``."""
    remote_length: int
    remote_bytes: float
    exclusive_free: int
    """The receiver's free buffers of the channel's own (CR-1)."""
    floating_held: int
    """The floating buffers that it has taken from its gate and not filled (CR-2)."""
    required: int
    """The free buffers that it needs (CR-2)."""
    waits: bool
    """It waits for a floating buffer (CR-2)."""


class Share:
    """What of a pool's output a channel gets. The shares of a pool are next to each other: every step reads them."""

    weight_ratio: float
    deficit: float
    """How far the channel is behind its share, in parts of ``step_bytes``."""


class Input:
    """A place in the list of the channels of each receiver, gate by gate."""

    channel: int
    ready: int
    """At the same rows, a ring of the channels that can be read."""


class Pool:
    """The output of one subtask over one edge."""

    owner: int
    first: int
    """Its channels: from this one,"""
    end: int
    """up to and without this one."""
    size: int
    """Its segments (BUF-3)."""
    requested: int
    full_channels: int
    """Channels that have as many buffers as a channel may have (BUF-4)."""
    routing: int
    """How it chooses the channel of its next output (PT-1)."""
    next: int
    """The channel that has the next turn, counted from the first."""
    can_overtake: bool
    is_large: bool
    """The output of one record may need more buffers than a subtask gets in the middle of a record (BP-4)."""
    is_flush_due: bool
    output_bytes: float
    """For one input record."""
    step_bytes: float
    """What goes to a channel at once."""
    drawn_ratio: float
    """The share of these steps whose channel is drawn. The others keep the channels' shares."""
    flush_phase_ms: float
    left_over_bytes: float
    """Output that does not make a whole step yet."""


class Gate:
    """The input of one subtask over one edge."""

    owner: int
    first: int
    """Its places in ``inputs``: from this one,"""
    end: int
    """up to and without this one."""
    floating_free: int
    buffer_bytes: float
    """The size of its buffers by its throughput (DB-2)."""
    announced_bytes: float
    """The size that its senders know (DB-6)."""
    bytes_per_ms: float
    received_before_bytes: float
    """At the last measurement, as the next one."""
    idle_before_ms: float


class Subtask:
    """A subtask."""

    is_source: bool
    pool_first: int
    pool_end: int
    input_first: int
    input_end: int
    service_ms: float
    """For one record."""
    sync_ms: float
    async_fixed_ms: float
    upload_bytes: float
    callback_period_ms: float
    callback_ms: float
    source_per_ms: float
    """The rate of a source in records; 0 if it reads as fast as it can."""
    source_step_records: float
    burst_period_ms: float
    burst_ratio: float
    burst_factor: float

    activity: int
    free_at_ms: float
    """When it has done what it does."""
    record_ms: float
    """What a record of the present step takes."""
    no_mail_until_ms: float
    """Until then, a sync part or a callback runs (MB-1)."""
    idle_ms: float
    """In total."""
    idle_since_ms: float
    emitted_records: float
    """Of a source."""
    current: int
    """The channel whose buffer it processes; -1 for none."""
    slot: int
    """The kind of this buffer."""
    left_bytes: float
    """Of this buffer."""
    ready_head: int
    """The place of the first channel that can be read in the ring at ``input_first``."""
    ready_count: int

    checkpoint: int
    """The last checkpoint of which it has had a sign (AL-3, UC-1)."""
    started: int
    """The last checkpoint of which it has taken a snapshot (TE-3)."""
    done: int
    """The last checkpoint whose input has ended (AL-4, UC-5)."""
    switched: int
    """The last checkpoint that became unaligned here (AT-2)."""
    persisting: int
    """The checkpoint into which arriving data is copied (UC-3)."""
    arrivals: int
    """The barriers of ``checkpoint`` that have arrived."""
    is_input_open: bool
    outputs_wait: int
    """Its channels with a barrier that may overtake later."""
    output_front_bytes: float
    """Queued in front of these barriers."""
    sync_part: int
    waits_for_cap: bool
    """A snapshot waits until what it persists fits the cap (CAP-2)."""
    first_barrier_ms: float
    """When it had the first sign of ``checkpoint``."""
    persisted_bytes: float
    durable_ms: float
    """When its state is durable."""


class Checkpoint:
    """A checkpoint of the job. Row 0 is none."""

    status: int
    acks: int
    triggered_ms: float
    duration_ms: float
    in_flight_bytes: float
    travel_ms: float
    """The longest time from the trigger to the first barrier at a subtask."""
    alignment_ms: float
    """The longest one of a subtask."""
    pause_ms: float
    """The longest sync part."""


class Event:
    """An event that is no step."""

    at_ms: float
    sequence: int
    kind: int
    a: int
    """The object that it concerns: a subtask, a channel, a pool or a checkpoint, by its kind."""
    b: int
    """The checkpoint that it concerns."""


class Step:
    """A node in the tree of the subtasks' next steps."""

    at_ms: float
    sequence: int
    subtask: int


WAKE_SPREAD: Final = 6.0
"""A receiver notices an overtaking barrier after a random delay, at most this many times ``barrier_cost_ms``.

In the recordings of the tuning half, the first one of two subtasks below a source saw the barrier first in 74 % of
cases with 4 subtasks, and in 91 % with 16. Both follow from this number, whatever a barrier takes.
"""


class NoPlaceError(Exception):
    """A queue of the simulation has no place left. Compiled code can raise it."""


class Sim(NamedTuple):
    """One simulation."""

    settings: Settings
    state: State
    channels: Table[Channel]
    shares: Table[Share]
    """At the rows of ``channels``."""
    inputs: Table[Input]
    pools: Table[Pool]
    gates: Table[Gate]
    subtasks: Table[Subtask]
    checkpoints: Table[Checkpoint]
    events: Table[Event]
    """A heap."""
    steps: Table[Step]
    """A tree (``schedule``)."""
    queues: Floats
    """The sender's ring of each channel: the bytes of a buffer, or minus (4 times the checkpoint plus the kind) of a
    barrier."""
    remote_queues: Floats
    """The receiver's ring of each channel, in the same way."""
    remote_slots: Ints
    """The kinds of the receive buffers in that ring."""


_NUMPY: Final = {int: np.int64, float: np.float64, bool: np.bool_}


def table(of: type[Row], rows: int) -> Any:
    """Return a table of zeros whose columns are the annotations of a class."""
    columns = [(name, _NUMPY[kind]) for name, kind in get_type_hints(of).items()]
    return np.zeros(rows, np.dtype((np.record, np.dtype(columns, align=True)))).view(np.recarray)
