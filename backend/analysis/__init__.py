"""Analyses checkpoints and readings of back-pressure, and decides what delays a barrier. Import layer 1 (see README).

The package is pure: no clock, no network, no files. It uses only NumPy and the standard library.

Each folder is called a wing, and its docstring lists its modules. A module imports only from its own wing and from the
wings further down in this list; ``health``, ``queries`` and ``space_time`` do not import each other:

* ``assembling``  which checkpoints and readings of a run are evidence; the only module that is in no wing
* ``verdict``     what delays the barrier, and why
* ``health``      how the checkpoints of a job fare, and which of them differ from the others
* ``queries``     the micro-batches of Spark queries, and their verdict
* ``space_time``  the space-time diagram of a checkpoint
* ``measures``    what is computed from the values of checkpoints and readings: parts, paths, loads, comparisons
* ``words``       numbers and names in words, and the limits of the rules
* ``numbers``     statistics, and the keeping of computed values
"""
