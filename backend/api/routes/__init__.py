"""HTTP routes. They parse, call a service and serialise; they decide nothing."""
