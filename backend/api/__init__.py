"""HTTP: the API under ``/api/v1``, and the access control in front of the API and the pages."""
