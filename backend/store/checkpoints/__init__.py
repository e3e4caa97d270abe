"""Checkpoints in the store: headers, arrays over subtasks, progress, micro-batches, statistics."""
