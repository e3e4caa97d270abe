"""The reference runtime: a deterministic stream processor on virtual time. It uses only the standard library.

The same job, settings and seed give the same event trace on every machine. The runtime reads no clock, derives all
random numbers from the seed, and starts no thread. ``PROTOCOL.md`` lists its rules and how far each is implemented.

Each folder is called a wing, and its docstring lists its modules. A module imports only from its own wing and from the
wings further down in this list:

* ``engine``       runs one job: from a job file to the trace and the results
* ``coordinator``  the checkpoint coordinator: triggers, completes and fails checkpoints, and restores the job from one
* ``task``         one subtask: its mailbox loop, its part in checkpoints, its restore and its stop
* ``snapshot``     what a checkpoint holds, its bytes in the store, and how a restore distributes it to subtasks
* ``protocols``    the checkpoint protocols: when a task aligns, snapshots and persists in-flight data
* ``measure``      the values that the runtime measures
* ``network``      how records travel between subtasks: buffers, channels, credit
* ``operators``    what subtasks compute: operators, sources, sinks, and their state
* ``job``          the description of a job before it runs: graph, settings, faults
* ``core``         elements of channels, virtual time, random numbers, hashing, units

``demo`` holds job files.
"""
