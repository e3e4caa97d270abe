"""Recommendations in the store."""
