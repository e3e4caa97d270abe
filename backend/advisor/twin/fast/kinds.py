"""The numbers by which the fast tier's compiled code tells kinds apart. It reads them as constants."""

from __future__ import annotations

from typing import Final

# Kinds of checkpoints, and their rules in ``backend/runtime/PROTOCOL.md``.
ALIGNED: Final = 0
"""AL-1 to AL-5."""
AT_LEAST_ONCE: Final = 1
"""ALO-1."""
UNALIGNED: Final = 2
"""UC-1 to UC-10."""
ALIGNED_TIMEOUT: Final = 3
"""AT-1 to AT-6."""
CAPPED: Final = 4
"""CAP-1 to CAP-3."""

# Kinds of barriers.
IN_ORDER: Final = 0
"""In the queue and blocking (Q-3)."""
TIMEOUTABLE: Final = 1
"""In the queue until a timeout (AT-6), or until the data in front fits the cap (CAP-3)."""
OVERTAKING: Final = 2
"""Past the queue (UC-4)."""
FORCED: Final = 3
"""In the queue because the edge does not let barriers overtake (OPT-5)."""

# How a pool chooses the channel of its next output.
SHARES: Final = 0
IN_TURN: Final = 1
TO_ALL: Final = 2

# What a subtask does.
IDLE: Final = 0
"""It waits for input."""
BUSY: Final = 1
NO_OUTPUT: Final = 2
"""It waits for an output buffer."""

# The sync part of a subtask's snapshot, and what follows it.
NOT_SYNCED: Final = 0
SYNCED_ONLY: Final = 1
WRITTEN: Final = 2
"""The in-flight data is being written, or the acknowledgement is on its way."""

# The buffer that a subtask processes.
OWN: Final = 0
FLOATING: Final = 1
PART: Final = 2
"""A part of the sender's current buffer, whose segment the sender keeps."""

# The state of a checkpoint.
PENDING: Final = 0
COMPLETED: Final = 1
EXPIRED: Final = 2

# Events.
FLUSH: Final = 0
TRIGGER: Final = 1
PRIORITY: Final = 2
INPUT_TIMER: Final = 3
OUTPUT_TIMER: Final = 4
SYNCED: Final = 5
ACK: Final = 6
TICK: Final = 7
EXPIRE: Final = 8
CALLBACK: Final = 9
DEBLOAT: Final = 10
RECHECK: Final = 11
MAIL: Final = 16
"""Added to the kind of a message to a subtask, once the subtask can handle it."""
