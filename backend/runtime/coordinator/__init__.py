"""The checkpoint coordinator: when checkpoints start, when they complete, and what a failure restores."""
