"""HTTP routes. They parse the request, call a service and serialise the result. They decide nothing."""
