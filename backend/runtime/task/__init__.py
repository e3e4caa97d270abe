"""One subtask. The module ``task`` imports all other modules, and these use the task only through ``ports``.

* ``task``           the mailbox loop, backpressure and the choice of the next input
* ``ports``          the interface of a task for the other modules
* ``environment``    the objects that all parts of a running job share
* ``messages``       messages from subtasks to the coordinator
* ``checkpointing``  carries out the protocol's commands
* ``snapshots``      takes one snapshot: forwards the barrier, takes the state, writes it, acknowledges
* ``capping``        reports the subtask's in-flight bytes, and the cap on them, to the protocol
* ``event_time``     watermarks, idle inputs, timers
* ``sourcing``       the steps of a source
* ``running_ahead``  carries out several steps together if that changes nothing that can be observed
* ``finishing``      ends the subtask; ``ending`` decides when it may close
* ``stopping``       stops the subtask with a savepoint, if tasks do not finish otherwise
* ``recovery``       restores one attempt of one subtask from its share of a checkpoint
* ``restarts``       measures the cost of each restart of the job; restores nothing
"""
