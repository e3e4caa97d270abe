"""Use cases about single checkpoints and lists of checkpoints."""
