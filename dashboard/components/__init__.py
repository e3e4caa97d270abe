"""Reusable parts of the pages. Their functions take values and return components. They do not call the API."""
