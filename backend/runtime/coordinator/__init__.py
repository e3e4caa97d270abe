"""The checkpoint coordinator: decides when checkpoints start and complete, and what a restart restores.

* ``coordinator``     collects acknowledgements; completes, subsumes, expires and fails checkpoints
* ``triggering``      turns requests into checkpoints
* ``requests``        the queue of requests, which chooses the next one
* ``ticks``           the timer of periodic checkpoints
* ``backlog``         the checkpoint interval while sources work off a backlog
* ``failure_policy``  which failed checkpoints count, and when the job fails because of them
* ``restore_point``   chooses and reads the checkpoint that the next start of the job restores
* ``rescales``        restarts the running job at another parallelism

``rescales`` handles requests to change the parallelism. ``network.rescaling`` maps the channels of the old parallelism
to those of the new one.
"""
