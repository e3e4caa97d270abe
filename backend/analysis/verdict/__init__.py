"""Decides what delays the barrier, and why: the facts of one case, and one module for each family of causes.

* ``verdict``             asks the rules, and joins a first and a second cause
* ``rules``               all rules in their order
* ``rule``                what a rule is, and what it may need
* ``case``                the facts for one verdict, computed once
* ``draft``               builds a verdict from a case; all rules share it
* ``evidence_rows``       rows of evidence
* ``refused``             rules: checkpointing is off, or every checkpoint is refused
* ``restarts``            rules: restarts again and again, the replay after a restart
* ``coordinator``         rules: a coordinator that cannot do its own part, or is late
* ``snapshot``            rules: a snapshot that fails, a long sync or async part
* ``stuck_sync``          rules: a sync part that does not end, a snapshot that does not reach the store
* ``oversized``           rule: an acknowledgement that is larger than a message may be
* ``forwarded``           rule: a full subtask that forwarded the barrier and does not acknowledge
* ``unsent_barrier``      rules: a barrier that a task gets, or should emit, but does not send on
* ``standing_still``      rules: a long callback, a wait for a commit
* ``after_completion``    rule: work after each completed checkpoint
* ``piece_of_work``       rule: one piece of work that holds the thread of a task
* ``barrier``             rules: a late source, a full vertex or subtask, a slow host, a host that stands still
* ``burst_queue``         rule: a queue before a vertex that is full only while much input comes
* ``no_cause``            rules: nothing holds the barrier, or the cause is not decided
* ``exceptions``          what the exceptions of restarts say, by the table of known messages
* ``pods``                what ends of TaskManagers' pods explain of the restarts
* ``lost_rows``           output that is lost although checkpoints complete
* ``barrier_waits``       where barriers wait, and what the subtasks read meanwhile
* ``last_subtask``        the subtask of a vertex that the barrier reaches last in nearly every checkpoint
* ``loads_without_sync``  the loads of the vertices, less the effect of a long sync part
* ``without_data``        the diagnosis of a job about which the engine reports nothing
"""
