"""Use cases about targets and about jobs that push."""
