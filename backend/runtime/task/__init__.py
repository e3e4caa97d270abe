"""One subtask: its mailbox loop, its checkpoints, its start and its end."""
