"""The jobs of the pipeline: read, transform, write. Each job has a module."""
