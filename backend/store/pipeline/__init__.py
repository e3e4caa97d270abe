"""Reads the records of the rollup pipeline and of the Spark demo."""
