"""Reads hourly rollups."""
