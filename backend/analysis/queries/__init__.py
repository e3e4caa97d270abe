"""Spark queries, which have micro-batches and no barriers.

* ``micro_batches``        signs of back-pressure in the micro-batches of a query
* ``verdict_micro_batch``  whether a query keeps up, and which part takes longest
"""
