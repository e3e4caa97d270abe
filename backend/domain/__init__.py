"""Floor 0: the field's vocabulary. Values only, standard library only; it imports nothing of ours.

* ``ids``         opaque identities
* ``errors``      every error raised on purpose
* ``clock``       where time comes from: always passed in
* ``failure``     why a checkpoint failed, as a closed set
* ``topology``    vertices and edges of a job, as reported
* ``checkpoint``  a checkpoint as its coordinator reported it, down to subtasks
* ``pressure``    backpressure and queues of one vertex at one instant
* ``barriers``    per-channel barrier events
* ``observation`` one reading of one target: what a collector hands to the store
* ``verdict``     who holds the barrier, and why
"""
