"""The fast tier: simulates the checkpoints of a model in compiled code.

* ``fast``            the entry: runs a simulation and reads the result
* ``building``        from a model to the state of a job that has not begun
* ``tables``          the state: a table for each kind of object, whose columns have names and units
* ``kinds``           the numbers of the kinds of checkpoints, barriers and events
* ``compiling``       how numba compiles, and the type that it gives a simulation
* ``loop``            compiled: the loop over events
* ``barriers``        compiled: checkpoints at a subtask
* ``channels``        compiled: buffers, pools, credits
* ``events``          compiled: the heap of events, random numbers, steps of subtasks
* ``throughput``      counts what the simulated job has processed
* ``compiled_cache``  the folder of the compiled code
"""
