"""Reads and writes jobs, their runs and their backpressure."""
