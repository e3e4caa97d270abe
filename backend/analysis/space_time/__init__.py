"""The space-time diagram (V4) of one checkpoint: what happened at each subtask and on each channel, and when.

* ``trace``          values: the times of subtasks and channels
* ``measured``       pure: barrier events -> trace
* ``reconstructed``  pure: phases of subtasks -> trace, for an engine that reports no channels
* ``folding``        pure: trace -> a bounded number of lanes, and the arrows between them
"""
