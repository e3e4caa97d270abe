"""Statistics and the keeping of computed values. It knows no checkpoints.

* ``statistics``     medians, quantiles and shares that leave out missing values
* ``arrays``         the same over arrays with one value for each subtask
* ``change_points``  when durations began to be longer or shorter
* ``log_buckets``    counts in buckets from which quantiles are computed
* ``lazy``           a property that is computed when it is first used
* ``cache``          keeps what was computed from an immutable value
"""
