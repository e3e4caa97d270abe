"""When a task aligns, snapshots and persists in-flight data for one checkpoint. Pure state machines.

A protocol gets each arrival and answers with commands for the task. It reads no clock and touches no channel, so the
same order of arrivals always gives the same commands. The table is runtime.md, Appendix A.

* ``registry``         all protocols; decides the mode of a checkpoint, and says how to add a protocol
* ``mode``             what a protocol states about itself, and what it may ask its task
* ``base``             the ports of protocols and keepers, and the commands
* ``aligned``, ``unaligned``, ``aligned_timeout``, ``capped``, ``at_least_once``  one protocol each
* ``gatekeeper``       keeps the checkpoints of a task that has one at a time
* ``concurrent``       keeps the checkpoints of a task that has several unaligned ones at a time
"""
