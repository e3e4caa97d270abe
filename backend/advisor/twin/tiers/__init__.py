"""The tiers that answer a what-if, from the quickest to the most detailed, and what they predict.

* ``tiers``         a model in each quick tier, and which of them answers
* ``predicting``    the entry for callers: the outcome of a what-if in a tier
* ``formulas``      the closed forms CM-1 to CM-9
* ``runtime_tier``  the model as a job of the reference runtime, run in virtual time
* ``calibration``   scores a model on checkpoints that it has not seen
* ``fleet``         one job of a fleet in the few numbers of a table
"""
