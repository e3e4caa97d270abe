"""What subtasks compute: operators, sources, sinks, and their state."""
