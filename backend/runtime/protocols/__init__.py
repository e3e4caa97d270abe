"""When a task snapshots, blocks and persists for one checkpoint: one port, one file a protocol. Pure state machines.

A protocol is told what arrives and answers with commands for the task; it reads no clock and touches no channel, so
one order of arrivals always yields one list of commands. The table is runtime.md, Appendix A.
"""
