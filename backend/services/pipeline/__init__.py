"""The pipeline's state as the API shows it."""
