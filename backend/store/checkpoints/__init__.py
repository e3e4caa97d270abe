"""Reads and writes checkpoints: headers, arrays over subtasks, progress, micro-batches, statistics."""
