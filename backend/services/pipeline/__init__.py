"""Converts the state of the rollup pipeline to the API's shape."""
