"""Use cases about the long view of a job."""
