"""Use cases about a job's hourly rollups."""
