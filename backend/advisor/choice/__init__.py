"""Lets the fast simulation choose mode, aligned timeout, cap and interval together (R-INT-1).

* ``choosing``       simulates settings, and chooses
* ``late_barriers``  barriers that were later than the simulation explains
* ``uneven_queues``  how uneven the queues of a job are from checkpoint to checkpoint
* ``by_simulation``  turns the choice into answers on the mode, on in-flight data and on the interval
"""
