"""A collected job as a model that can be run under changed settings: the twin.

Pure: no clock, no network, no store.

* ``model``     the model of a job, what it assumes, and its calibration
* ``changes``   the changes that a what-if can make to a model
* ``changing``  applies them
* ``outcomes``  what a tier predicts for a model
"""
