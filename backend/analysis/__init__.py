"""Floor 1: what checkpoints and readings say. Pure: no clock, no network, no files; numpy and the standard library.

* ``thresholds``     every number a rule compares with, and why it is that number
* ``evidence``       what is known of one job when it is judged
* ``statistics``     medians, quantiles and shares that leave out what is missing
* ``phases``         one subtask's way through one checkpoint, reconstructed
* ``critical_path``  from a source to the last acknowledgement
* ``pressure``       which subtask is full while what feeds it is held back
* ``travel``         how long the barrier took from vertex to vertex, for want of pressure readings
* ``snapshots``      sync and async parts that are long in themselves
* ``failures``       the subtask that every failed checkpoint waited for
* ``health``         how the checkpoints of a job fare
* ``progress``       whether an open checkpoint progresses, is slow or is stuck
* ``sentences``      numbers and subtasks in words
* ``verdict``        who holds the barrier, and why
"""
