"""Use cases about jobs, and the evidence that other use cases share."""
