"""Decides when to raise an alert, and writes its texts.

Pure: no clock, no I/O, no random numbers. Import layer 2 (see README).

* ``rules``       the rules with their editable thresholds and times
* ``signals``     the current values of a job or target, collected by the caller
* ``conditions``  (rule, signal) -> reading: active, clear, unknown or gone
* ``unlisted_conditions``  the conditions that the listed checkpoints do not show
* ``readings``    the readings of the rules on jobs, with their texts
* ``lifecycle``   (timing, state, reading, now) -> next state and event
* ``evaluation``  one evaluation of every rule for every signal
* ``incidents``   which alerts are one incident: one cause at one job or target
* ``labels``      labels, fingerprints, and the matchers of silences
* ``payloads``    the texts and links in messages about an alert
* ``delivery``    kinds and states of deliveries, origins of receivers

Invariant: an unknown reading changes no state, so missing data never counts as health.
"""
