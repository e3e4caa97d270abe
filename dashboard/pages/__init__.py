"""The pages. Each has a module or a folder with its layout and its callbacks."""
