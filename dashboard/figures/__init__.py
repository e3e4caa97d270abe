"""Pure functions from the API's values to charts: a figure, its table and one sentence that says the same."""
