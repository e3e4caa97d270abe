"""Floor 0: the vocabulary of the field. It has values only, and imports only the standard library.

* ``ids``         opaque identities
* ``errors``      every error raised on purpose
* ``clock``       the clock, which callers pass in
* ``failure``     the reasons for a failed checkpoint
* ``topology``    vertices and edges of a job, as reported
* ``checkpoint``  a checkpoint as its coordinator reported it, with its subtasks
* ``target``      the states of a target
* ``pressure``    backpressure and queues of one vertex at one instant
* ``barriers``    per-channel barrier events
* ``observation`` one reading of one target, from a collector to the store
* ``verdict``     which subtask holds the barrier, and why
"""
