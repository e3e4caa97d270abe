"""Hourly rollups in the store."""
