"""Floor 1: the reference runtime, a deterministic stream engine on virtual time. Standard library only.

Same job, settings and seed give the same event trace, whatever the machine (``PROTOCOL.md`` has the rules and how far
each is built). It reads no wall clock, draws no chance of its own and starts no thread.

* ``jobfile``      TOML -> ``JobSpec``
* ``config``       the settings and their keys
* ``graph``        vertices, edges, partitioners, channels
* ``elements``     records on the wire, barriers and other events
* ``buffers``      segments, output pools, subpartitions
* ``sizes``        the same run without the bytes of records
* ``channel``      local and remote input channels, credits, the input gate
* ``operators``    sources, maps, keyed stages, the transactional sink
* ``task``         one subtask: mailbox loop, backpressure, time accounting
* ``checkpointing`` what a subtask does for one checkpoint
* ``protocols``    when it does so: aligned, unaligned, aligned with timeout, in-flight cap
* ``coordinator``  trigger, pending, completed, subsumed, expired, failure policy
* ``storage``      the store that snapshots are written to, and the sink's ledger
* ``faults``       named failpoints
* ``kernel``       the event heap and the engine that composes all of this
* ``simulate``     a job as fast as it goes, and its figures
"""
