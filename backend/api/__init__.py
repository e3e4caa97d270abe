"""Floor 5: HTTP. Our API under ``/api/v1``, and the gate before it and the pages."""
