"""Checkpoint protocols: pure state machines that decide when a task aligns, snapshots and persists in-flight data.

A protocol receives each arrival and returns commands for the task. It reads no clock and touches no channel, so the
same order of arrivals always gives the same commands. The table is in runtime.md, Appendix A.

* ``registry``         all protocols; decides the mode of a checkpoint, and describes how to add a protocol
* ``mode``             the description of a protocol for the registry, and a protocol's view of its task
* ``base``             the interfaces of protocols and keepers, and the commands
* ``aligned``, ``unaligned``, ``aligned_timeout``, ``capped``, ``at_least_once``  one protocol each
* ``gatekeeper``       the keeper of a task that has one pending checkpoint at a time
* ``concurrent``       the keeper of a task that has several pending unaligned checkpoints at a time
"""
