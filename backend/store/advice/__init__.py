"""Reads and writes recommendations."""
