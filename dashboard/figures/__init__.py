"""Pure functions that convert values of the API to charts. A chart is a figure with its table and its summary."""
