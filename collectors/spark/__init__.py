"""Spark Structured Streaming: the listener that a job loads, and the query that ``up`` brings along as a demo.

``pyspark`` is imported in ``listener`` and ``demo`` only.
"""
