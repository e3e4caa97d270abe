"""The database schema: tables, partitions, JSON documents, arrays and migration."""
