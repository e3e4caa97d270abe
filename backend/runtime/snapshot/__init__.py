"""What a checkpoint holds, and what it may be restored into."""
