"""Answers API requests about a job's hourly rollups."""
