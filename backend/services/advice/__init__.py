"""Use cases about advice."""
