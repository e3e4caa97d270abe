"""One subtask. ``task`` imports the parts, and the parts see the task through ports.

* ``task``           the mailbox loop, backpressure, what it reads
* ``ports``          what each part may ask of the task
* ``environment``    what all parts of a running job share
* ``messages``       messages from subtasks to the coordinator
* ``checkpointing``  carries out the commands of the protocol
* ``snapshots``      takes one snapshot: forwards the barrier, takes the state, writes it, acknowledges
* ``capping``        what a capped checkpoint asks of the subtask
* ``event_time``     watermarks, idle inputs, timers
* ``sourcing``       the steps of a source
* ``running_ahead``  carries out several steps at once if nobody can tell
* ``stopping``       stops with a savepoint
* ``recovery``       restores one attempt of one subtask from its share of a checkpoint
* ``restarts``       measures what each restart of the job cost; it restores nothing
"""
