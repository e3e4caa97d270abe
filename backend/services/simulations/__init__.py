"""Simulations: what can be requested, the queue, the worker, and the presentation of a run's measurements."""
