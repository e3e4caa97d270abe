"""The vocabulary of the product: immutable values that every other package uses. Import layer 0 (see README).

These modules import only the standard library and each other:

* ``ids``         opaque identities
* ``errors``      every error raised on purpose
* ``clock``       the interface of the clock, which callers pass in
* ``failure``     the reasons for a failed checkpoint
* ``topology``    vertices and edges of a job, as reported
* ``checkpoint``  a checkpoint as its coordinator reported it, with its subtasks
* ``target``      the states of a target
* ``pressure``    backpressure and queues of one vertex at one instant
* ``barriers``    per-channel barrier events
* ``observation`` one reading of one target, from a collector to the store
* ``verdict``     which subtask holds the barrier, and why
"""
