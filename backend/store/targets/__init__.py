"""Reads and writes targets, their health and their leases."""
