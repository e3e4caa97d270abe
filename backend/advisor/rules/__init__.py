"""The rules of the advice. Each module has one topic, and gives a recommendation or the reason for none.

* ``checkpoint_mode``  R-UC: aligned or unaligned
* ``mode_evidence``    the rows of evidence for advice on the mode
* ``aligned_timeout``  R-AT: the age at which an aligned checkpoint becomes unaligned
* ``in_flight``        R-CAP: how much in-flight data a checkpoint may persist
* ``spiral``           R-REC-1: whether a checkpoint completes between two failures; data that grows by restores
* ``capacity``         R-PAR and R-REC-2: the parallelism of the vertex that limits the job
* ``state``            R-ST: incremental checkpoints and a changelog
* ``buffers``          R-DB, R-BUF and R-NET: network buffers
* ``intervals``        R-INT: the interval, and the pause between checkpoints
* ``failing``          R-TO, R-TOL and R-RET: timeout, tolerated failures, retained checkpoints
* ``query_rules``      R-MB: the settings of a micro-batched query
* ``lints``            settings and versions that are known to cause trouble
"""
