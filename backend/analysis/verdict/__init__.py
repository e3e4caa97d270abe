"""Decides what delays the barrier, and why: the facts of one case, and one module for each family of causes.

* ``verdict``       applies the rules in order, and words what remains undecided
* ``case``          the facts for one verdict, computed once
* ``draft``         builds a verdict from a case; all rules share it
* ``rows``          rows of evidence
* ``refused``       rules: checkpointing is off, or every checkpoint is refused
* ``outside``       rules: the coordinator, restarts, the replay after a restart
* ``snapshot``      rules: a snapshot that fails, a long sync or async part
* ``barrier``       rules: a late source, a full vertex or subtask, long queues
* ``stall``         rules: a stuck sync part, a long callback, a wait for a commit
* ``stalls``        subtasks that stand still: busy, but they read no records
* ``lasts``         the subtask of a vertex that the barrier reaches last in nearly every checkpoint
* ``relief``        the loads of the vertices, less the effect of a long sync part
* ``without_data``  the diagnosis of a job about which the engine reports nothing
"""
