"""The collector for Flink and for the live runtime, which has the same monitoring REST.

* ``client``     HTTP with bounds: size, time, redirects
* ``document``   a JSON answer with its path, so that an error can name the field
* ``parse``      pure: JSON answers -> domain values
* ``gauges``     pure: readings of gauges -> late barriers and pressure
* ``reading``    the memory of one run between polls
* ``collector``  one poll over all jobs
"""
