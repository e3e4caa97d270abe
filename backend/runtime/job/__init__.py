"""What a job is before it runs: its graph, its settings, its faults, and how a document of it is read."""
