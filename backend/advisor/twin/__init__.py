"""A collected job as a model that can be run under changed settings: the twin.

Pure: no clock, no network, no store.

Each folder is called a wing, and its docstring lists its modules. A module imports only from its own wing and from the
wings further down in this list; ``asking`` and ``fast`` do not import each other:

* ``tiers``   the tiers that answer what-ifs, and what they predict; ``predicting`` is the entry for callers
* ``asking``  what-ifs: how they are read, applied and written
* ``fast``    the fast tier: simulates checkpoints in compiled code
* ``model``   the model of a job, and how it is built from evidence
"""
