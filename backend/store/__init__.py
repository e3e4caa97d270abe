"""Floor 3: PostgreSQL. It holds all stored data, and it is the only package that contains SQL.

* ``postgres``     connections and the translation of their errors, COPY, paging, the server that ``up`` starts
* ``schema``       tables for Alembic, day partitions, JSON documents, arrays, migration
* ``checkpoints`` ``jobs`` ``alerts`` ``advice`` ``targets`` ``rollups`` ``pipeline``   readers and writers
* ``ingest``       the one write path for observations
* ``retention``    deletion of old data
"""
