"""Access to PostgreSQL: connections, COPY, paging, and the server that ``up`` starts."""
