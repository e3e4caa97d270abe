"""Checkpoint protocols: pure state machines that decide when a task aligns, snapshots and persists in-flight data.

A protocol receives the events of a task, such as the arrival of a barrier, and returns commands for the task. It reads
no clock and touches no channel, so the same order of events always produces the same commands. The transition table is
in runtime.md, Appendix A.

* ``registry``         all protocols; decides the mode of a checkpoint, and describes how to add a protocol
* ``mode``             what a protocol declares to the registry, and what a protocol can read of its task
* ``base``             the interfaces of protocols and of keepers (a keeper handles all checkpoints of one task), and
                       the commands
* ``aligned``, ``unaligned``, ``aligned_timeout``, ``capped``, ``at_least_once``  one protocol each
* ``gatekeeper``       the keeper of a task that has one pending checkpoint at a time
* ``concurrent``       the keeper of a task that may have several pending unaligned checkpoints
"""
