"""Reusable parts of the pages. They take values and return components. They do not call the API."""
