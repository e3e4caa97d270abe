"""The pages of the dashboard. Each page has a module or a folder with its layout and its callbacks."""
