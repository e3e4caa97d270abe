"""What a checkpoint holds, and what can be restored from it.

* ``completed``     a completed checkpoint, and the share of a job's in-flight cap that follows from it
* ``metadata``      a completed checkpoint as bytes, and back
* ``restoring``     deals a checkpoint that was read out to the subtasks of a graph, at any parallelism; it runs nothing
* ``sizes``         its channel state as spans, for a run that counts bytes and does not make them
* ``local_copies``  copies of keyed state that workers keep, to restore without a transfer
* ``capabilities``  what each kind of snapshot may be used for

``restoring`` is a pure function of a checkpoint and a graph. ``task.recovery`` carries out its result in one subtask.
"""
