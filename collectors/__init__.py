"""Package; see README."""
