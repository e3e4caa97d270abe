"""Answers API requests about targets, and stores what Spark listeners push."""
