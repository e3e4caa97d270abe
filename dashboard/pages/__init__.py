"""One module a page: its layout, and the callbacks that keep it live."""
