"""What this service tells Prometheus about itself and the jobs that it watches.

* ``registry``   the metrics of this process, and where a role adds its own
* ``page``       the page ``/metrics``

A role declares a metric with ``counter``, ``gauge`` or ``histogram``, or registers a source whose values are read at
each scrape. No metric has the labels ``job`` and ``instance``, which Prometheus sets.
"""
