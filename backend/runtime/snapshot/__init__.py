"""The content of checkpoints, and how they are restored.

* ``completed``     a completed checkpoint, and the share of the job's in-flight cap that each subtask has
* ``metadata``      writes a completed checkpoint as bytes, and reads it back
* ``restoring``     assigns a checkpoint's state to the subtasks of a graph, at any parallelism
* ``sizes``         converts channel state into spans, for runs that track only the sizes of records
* ``local_copies``  the workers' own copies of keyed state, for restoring without a transfer
* ``capabilities``  the uses that each kind of snapshot supports

``restoring`` is a pure function of a checkpoint and a graph. ``task.recovery`` applies its result to one subtask.
"""
