"""Use cases about jobs, and the evidence that others build on."""
