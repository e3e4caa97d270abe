"""The operators that subtasks run, and their state.

* ``operators``        maps and keyed operators, and how they are chained
* ``timed_operators``  windows, timers, and other operators that use event time
* ``operator_state``   operators with broadcast state and with union list state
* ``sources``          sources, which read the splits of a log
* ``sinks``            transactional, idempotent and plain sinks
* ``state``            keyed state, timers and operator state, as bytes
* ``redistribution``   distributes state over subtasks at a restore
* ``storage``          the store that snapshots are written to, and the external system that sinks commit to
"""
