"""What the pipeline does: read, transform, write. One module a job."""
