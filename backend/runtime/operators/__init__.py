"""What subtasks compute, and what they keep.

* ``operators``        maps and keyed operators, and how they are chained
* ``timed_operators``  windows, timers, and other operators that use event time
* ``sources``          sources: a log in splits
* ``sinks``            transactional, idempotent and plain sinks
* ``state``            keyed state, timers and operator state, as bytes
* ``redistribution``   which subtask gets which state at another parallelism
* ``storage``          the store that snapshots are written to, and the external system that sinks commit to
"""
