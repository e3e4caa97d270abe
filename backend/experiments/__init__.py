"""Experiments: repeated runs of the reference runtime that compare protocols, with every row kept.

``catalog`` lists them. ``running`` runs them, and goes on where a killed run stopped. ``report`` writes the results.
"""
