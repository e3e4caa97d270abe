"""Runs one job.

* ``kernel``      the job on virtual time: deploys subtasks, runs them, restarts the job after a failure
* ``wiring``      connects subtasks with channels
* ``debloating``  sets the bytes in a buffer so that queues hold a target time
* ``jobfile``     reads a job file
* ``simulate``    runs a job without a pause and returns its figures
"""
