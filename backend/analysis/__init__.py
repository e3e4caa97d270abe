"""Analyses checkpoints and readings of back-pressure, and decides what delays a barrier. Import layer 1 (see README).

The package is pure: no clock, no network, no files. It uses only NumPy and the standard library.

* ``thresholds``     the limits that the rules apply, and the reason for each
* ``evidence``       the input: the known values of one job
* ``statistics``     medians, quantiles and shares that leave out missing values
* ``phases``         the phases of one subtask in one checkpoint, partly reconstructed
* ``critical_path``  the path of the barrier from a source to the last acknowledgement
* ``delay``          how much delay of the barrier each vertex adds
* ``pressure``       busy subtasks downstream of back-pressured ones
* ``travel``         time of the barrier from vertex to vertex, used if there are no readings of back-pressure
* ``snapshots``      sync and async parts that are themselves long
* ``failures``       the subtask that every failed checkpoint waited for
* ``health``         healthy, slow, failing or too few checkpoints
* ``replay_debt``    what a failure would read again, now and at a random moment
* ``progress``       whether an open checkpoint progresses, is slow or is stuck
* ``change_points``  when a job's checkpoints began to take longer or shorter
* ``log_buckets``    counts in buckets from which quantiles are computed
* ``micro_batches``  signs of back-pressure in a Spark query
* ``sentences``      numbers, subtasks and vertices in words
* ``case``           the facts for one verdict, computed once
* ``rows``           rows of evidence
* ``verdict``        what delays the barrier, and why; ``verdict_*`` are its rules
"""
