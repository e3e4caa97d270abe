"""Targets in the store."""
