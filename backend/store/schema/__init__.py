"""What the database looks like: tables, partitions, JSON documents, arrays, and how it is migrated."""
