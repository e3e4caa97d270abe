"""Decides what delays the barrier, and why: the facts of one case, and one module for each family of causes.

* ``verdict``       asks the rules, and joins a first and a second cause
* ``rules``         all rules in their order
* ``rule``          what a rule is, and what it may need
* ``case``          the facts for one verdict, computed once
* ``draft``         builds a verdict from a case; all rules share it
* ``rows``          rows of evidence
* ``refused``       rules: checkpointing is off, or every checkpoint is refused
* ``outside``       rules: the coordinator, restarts, the replay after a restart
* ``snapshot``      rules: a snapshot that fails, a long sync or async part
* ``stuck``         rules: a sync part that does not end, a snapshot that does not reach the store
* ``forwarded``     rule: a full subtask that forwarded the barrier and does not acknowledge
* ``unsent``        rules: a barrier that a task gets, or should emit, but does not send on
* ``stall``         rules: a long callback, a wait for a commit
* ``completions``   rule: work after each completed checkpoint
* ``pieces``        rule: one piece of work that holds the thread of a task
* ``barrier``       rules: a late source, a full vertex or subtask, long queues
* ``no_cause``      rules: nothing holds the barrier, or the cause is not decided
* ``stalls``        subtasks that stand still: busy, but they read no records
* ``lasts``         the subtask of a vertex that the barrier reaches last in nearly every checkpoint
* ``relief``        the loads of the vertices, less the effect of a long sync part
* ``without_data``  the diagnosis of a job about which the engine reports nothing
"""
