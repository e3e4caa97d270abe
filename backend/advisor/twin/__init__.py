"""A collected job as a model that can be run under changed settings: the twin.

Pure: no clock, no network, no store.

* ``model``     the model of a job, what it assumes, and its calibration
* ``changes``   the changes that a what-if can make to a model
* ``changing``  applies them
* ``building``  builds a model from the evidence about a job
* ``flows``     rates, service times, shares and queues, from readings of backpressure
* ``parts``     the parts of snapshots, the store and the trigger, from checkpoints
* ``outcomes``  what a tier predicts for a model
"""
