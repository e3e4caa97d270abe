"""How this process reaches PostgreSQL: connections, COPY, paging, and the server that ``up`` brings along."""
