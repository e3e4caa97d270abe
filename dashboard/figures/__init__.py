"""Pure functions that turn values of the API into charts: a figure, its table and its summary."""
