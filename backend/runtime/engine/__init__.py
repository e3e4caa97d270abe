"""Runs one job.

* ``kernel``      the job on virtual time: deploys subtasks, runs them, restarts the job after a failure
* ``wiring``      connects subtasks with channels
* ``debloating``  sets the size of buffers so that queued data takes a target time to consume
* ``jobfile``     reads a job file
* ``simulate``    runs a job as fast as the machine can and returns its figures
"""
