"""The collector for Flink and for the live runtime, which has the same monitoring REST API.

* ``client``     HTTP with bounds: size, time, redirects
* ``document``   a JSON response with its path, so that an error can name the field
* ``parse``      pure: JSON responses -> domain values
* ``gauges``     pure: readings of gauges -> late barriers and pressure
* ``reading``    what the collector remembers about one run between polls
* ``collector``  one poll over all jobs
"""
