"""Reading Flink, and the live runtime, which speaks the same monitoring REST.

* ``client``     HTTP with bounds: size, time, redirects
* ``document``   a JSON answer with its path, so that an error can name the field
* ``parse``      pure: JSON answers -> domain values
* ``gauges``     pure: readings of gauges -> late barriers and pressure
* ``reading``    what is remembered of one run between polls
* ``collector``  which requests one poll makes, and what it hands on
"""
