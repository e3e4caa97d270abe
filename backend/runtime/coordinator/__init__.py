"""The checkpoint coordinator: when checkpoints start and complete, and what a restart restores.

* ``coordinator``     collects acknowledgements; completes, subsumes, expires and fails checkpoints
* ``triggering``      from a request to a checkpoint
* ``requests``        the queue of requests
* ``ticks``           the timer of periodic checkpoints
* ``backlog``         the interval while sources work off a backlog
* ``failure_policy``  which failed checkpoints count, and when the job fails because of them
* ``restore_point``   chooses and reads the checkpoint that the next start of the job restores
* ``rescales``        restarts the running job at another parallelism

``rescales`` handles the requests of users. ``network.rescaling`` maps the channels of an old parallelism to a new one.
"""
