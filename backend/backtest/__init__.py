"""Replays what would have been said of past checkpoints, as of each moment, and how it would have fared; pure."""
