"""Jobs and their runs in the store, with their backpressure."""
