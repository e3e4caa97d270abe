"""Use cases about checkpoints."""
