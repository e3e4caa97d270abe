"""Runs one job.

* ``kernel``      the job on virtual time: deploys subtasks, runs them, restarts the job after a failure
* ``wiring``      connects subtasks with channels
* ``debloating``  sets the size of buffers so that a receiver needs a target time to consume the queued data
* ``jobfile``     reads a job file
* ``simulate``    runs a job as fast as the machine can and returns the results
"""
