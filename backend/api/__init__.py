"""Floor 5: HTTP. Our API under ``/api/v1``, and the live runtime's monitoring REST."""
