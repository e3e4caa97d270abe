"""A collected job as a model that can be run under changed settings: the twin.

Pure: no clock, no network, no store.

* ``model``     the model of a job, what it assumes, and its calibration
* ``changes``   the changes that a what-if can make to a model
* ``changing``  applies them
* ``building``  builds a model from the evidence about a job
* ``flows``     rates, service times, shares and queues, from readings of backpressure
* ``contradictions``  refuses metrics that contradict each other
* ``callbacks``  the long callback of a vertex, from barriers that wait for it and from busy times
* ``hung_writes``  the writes to the store that hung, in recorded checkpoints
* ``hangs``     what writes that hang do to simulated durations
* ``next_shares``  the share of the next checkpoints that expire, and its interval
* ``parts``     the parts of snapshots, the store and the trigger, from checkpoints
* ``rates``     the flow that a model reaches, and what its buffers hold
* ``runtime_tier``  the model as a job of the reference runtime, run in virtual time
* ``formulas``  the closed forms CM-1 to CM-9
* ``calibration``  scores a model on checkpoints that it has not seen
* ``recovery``  what a failure costs, by interval, and a fit of it to observed recoveries
* ``tiers``     a model in each quick tier, and which of them answers
* ``fleet``     one job of a fleet in the few numbers of a table
* ``predicting``  the entry for callers: the outcome of a what-if in a tier
* ``outcomes``  what a tier predicts for a model
"""
