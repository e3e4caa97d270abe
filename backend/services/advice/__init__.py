"""Use cases about advice on jobs."""
