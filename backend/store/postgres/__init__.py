"""Access to PostgreSQL: connections, statements, COPY, paging, and the server that ``up`` starts."""
