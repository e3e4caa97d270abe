"""HTTP routes. Parse, call, serialise; decide nothing here."""
