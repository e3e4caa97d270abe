"""What is computed from the known values of checkpoints and readings: parts, paths, loads and comparisons.

* ``evidence``       the input: the known values of one job
* ``samples``        whether the known checkpoints of a run are all that it has had
* ``freshness``      how far the time of a reading may be from the time of its values
* ``phases``         the phases of one subtask in one checkpoint, partly reconstructed
* ``critical_path``  the path of the barrier from a source to the last acknowledgement
* ``delay``          how much delay of the barrier each vertex adds
* ``travel``         time of the barrier from vertex to vertex, for jobs without readings of back-pressure
* ``snapshots``      sync and async parts that are themselves long
* ``cut``            whether the snapshots of a checkpoint form a consistent cut
* ``pressure``       busy subtasks downstream of back-pressured ones
* ``hosts``          a host whose subtasks need longer for each record
* ``input_rates``    records that sources read in a second
* ``replay_debt``    what a failure would read again, now and at a random moment
* ``matching``       which vertices of two job graphs are compared with each other
* ``comparison``     two checkpoints, compared by vertex, phase and subtask
* ``windows``        a measure in two windows of time
* ``effects``        whether a change moved the durations of checkpoints
"""
