"""A collected job as a model: built from the evidence about the job, with what it reaches and what failures cost.

* ``model``           the model of a job, what it assumes, and its calibration
* ``building``        builds a model from the evidence about a job
* ``observed``        what the evidence shows of a job, and what refuses it
* ``vertices``        the vertices: service times, sources, output
* ``input_shares``    the share of its input that each subtask gets
* ``exchanges``       the exchanges between vertices, and the buffers of the network
* ``flows``           rates, service times, shares and queues, from readings of backpressure
* ``contradictions``  refuses metrics that contradict each other
* ``buffers``         the network buffers that a cluster's configuration gives to a job
* ``bursts``          bursts of a source: their period, their length and their height
* ``callbacks``       the long callback of a vertex, from waiting barriers and busy times
* ``hidden_shares``   guesses of the shares of subtasks whose queues no reading shows
* ``snapshots``       the parts of snapshots, the store and the trigger, from checkpoints
* ``outages``         when each outage began, and when the job ran again
* ``hung_writes``     the writes to the store that hung, in recorded checkpoints
* ``hangs``           what writes that hang do to simulated durations
* ``next_shares``     the share of the next checkpoints that expire, and its interval
* ``rates``           the flow that a model reaches, and what its buffers hold
* ``recovery``        what a failure costs, by interval, and a fit of it to observed recoveries
* ``outcomes``        what a tier predicts for a model
"""
