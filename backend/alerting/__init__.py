"""Floor 2: when to raise an alert, and its texts. Pure: no clock, no I/O and no random numbers.

* ``rules``       the rules with their editable thresholds and times
* ``signals``     the current values of a job or target, gathered by the caller
* ``conditions``  (rule, signal) -> reading: active, clear, unknown or gone
* ``prediction``  whether the running checkpoint will time out, from past checkpoints of the job
* ``lifecycle``   (timing, state, reading, now) -> next state and event
* ``labels``      labels, fingerprints, and the matchers of silences
* ``payloads``    message bodies for Alertmanager's API and the generic webhook

Invariant: an unknown reading changes no state, so missing data never counts as health.
"""
