"""Supports Spark Structured Streaming: the listener that a job loads, and the demo query that ``make up`` starts.

Only ``listener`` and ``demo`` import ``pyspark``, so the other modules work without it.
"""
