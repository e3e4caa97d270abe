"""How the checkpoints of a job fare, and which of them differ from the others.

* ``health``        healthy, slow, failing or too few checkpoints
* ``failures``      the subtask that every failed checkpoint waited for
* ``refusals``      whether the coordinator or the tasks refuse every checkpoint
* ``progress``      whether an open checkpoint progresses, is slow or is stuck
* ``finish``        when an open checkpoint finishes, and whether it reaches its timeout
* ``leads``         how the checkpoints fare, as the first part of a sentence
* ``conditions``    what the struck checkpoints have in common and the others lack
* ``struck_spans``  the times whose readings show what was different in struck checkpoints
* ``outliers``      what was different in a checkpoint that took many times as long as others
"""
