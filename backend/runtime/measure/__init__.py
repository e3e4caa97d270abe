"""Measurements of checkpoints and subtasks: values only.

* ``measures``       one checkpoint, its subtasks, and how a subtask spends its time
* ``summaries``      one checkpoint over the subtasks of a vertex: minimum, mean, maximum, quantiles
* ``requested``      checkpoints and savepoints that a user requested
* ``cap_decisions``  what a capped checkpoint decided at a subtask
"""
