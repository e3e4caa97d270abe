"""Experiments: repeated runs of the reference runtime that compare protocols, with every row kept.

``catalog`` lists them. ``running`` runs them, and continues where a killed process stopped. ``report`` writes the
results.
"""
