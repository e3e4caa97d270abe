"""Simulations: their queue and their results."""
