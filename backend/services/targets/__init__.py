"""Use cases about targets, and the jobs that push."""
