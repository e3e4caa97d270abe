"""Floor 1: analyses checkpoints and readings. Pure: no clock, no network, no files; NumPy and the standard library.

* ``thresholds``     the numbers that the rules compare with, and the reason for each
* ``evidence``       the input: the values known of one job
* ``statistics``     medians, quantiles and shares that leave out missing values
* ``phases``         the phases of one subtask in one checkpoint, reconstructed
* ``critical_path``  the path from a source to the last acknowledgement
* ``pressure``       full subtasks below back-pressured ones
* ``travel``         time of the barrier from vertex to vertex, used if there are no readings of back-pressure
* ``snapshots``      sync and async parts that are themselves long
* ``failures``       the subtask that every failed checkpoint waited for
* ``health``         healthy, slow, failing or too few checkpoints
* ``progress``       whether an open checkpoint progresses, is slow or is stuck
* ``change_points``  when a job's checkpoints began to take another time
* ``log_buckets``    counts in buckets from which quantiles are computed
* ``micro_batches``  signs of back-pressure in a Spark query
* ``sentences``      numbers, subtasks and vertices in words
* ``case``           the facts of one judgement, computed once
* ``rows``           rows of evidence
* ``verdict``        what holds the barrier, and why; ``verdict_*`` are its rules
"""
