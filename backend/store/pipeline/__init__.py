"""The pipeline's runs in the store."""
