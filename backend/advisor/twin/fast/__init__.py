"""The fast tier: simulates the checkpoints of a model in compiled code.

* ``fast``            the entry: builds the state of a simulation, runs it and reads the result
* ``fields``          the arrays of the state, and the names of their columns
* ``loop``            compiled: the loop over events
* ``barriers``        compiled: checkpoints at a subtask
* ``channels``        compiled: buffers, pools, credits
* ``events``          compiled: the heap of events, random numbers, steps of subtasks
* ``passed``          counts what the simulated job has processed
* ``compiled_cache``  the folder of the compiled code
"""
