"""Spark Structured Streaming: the listener that a job loads, and the demo query that ``up`` starts.

``pyspark`` is imported in ``listener`` and ``demo`` only.
"""
