"""The base of the runtime, which all other folders of the runtime import. It does not know jobs or tasks.

* ``elements``     records and watermarks as bytes, barriers and other events as values
* ``scheduler``    the event heap on virtual time
* ``prng``         named streams of pseudo-random numbers
* ``hashing``      the stable hash of keys
* ``units``        durations and sizes as text
* ``rates``        rates over the metric window, and mailbox latency
* ``provenance``   which source records a derived record came from
* ``barrier_log``  the barrier events of the last checkpoints
"""
