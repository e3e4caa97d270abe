"""What is measured of checkpoints and subtasks: values only."""
