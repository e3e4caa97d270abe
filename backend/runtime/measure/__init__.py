"""The values that the runtime measures about checkpoints and subtasks.

* ``measures``       measurements of one checkpoint, of its subtasks, and of how a subtask spends its time
* ``summaries``      statistics of one checkpoint over the subtasks of a vertex: minimum, mean, maximum, quantiles
* ``requested``      checkpoints and savepoints that a user requested
* ``cap_decisions``  what a checkpoint with a cap on in-flight data did at a subtask
"""
