"""Floor 2: when to raise an alert and what it says. Pure: no clock, no I/O, no chance; the same input, the same output.

* ``rules``       the rules with their thresholds, bounds and times; what may be edited
* ``signals``     what is known of one job or target now: values only, gathered by the caller
* ``conditions``  (rule, signal) -> reading: active, clear, unknown or gone
* ``prediction``  whether the running checkpoint will time out, from the job's own past
* ``lifecycle``   (timing, state, reading, now) -> next state and event
* ``labels``      labels, fingerprints, and the matchers of silences
* ``payloads``    what is sent: Alertmanager's API and the generic webhook

Invariant: an unknown reading changes no state. Silence is never taken for health.
"""
