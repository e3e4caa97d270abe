"""Reusable parts of the pages. They take values and return components; none asks the API."""
