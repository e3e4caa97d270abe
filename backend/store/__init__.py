"""Accesses PostgreSQL. Only this package contains SQL and reads or writes stored data. Import layer 3 (see README).

* ``postgres``     connections and the translation of their errors, COPY, paging, the server that ``up`` starts
* ``schema``       tables for Alembic, day partitions, JSON documents, arrays, migration
* ``checkpoints`` ``jobs`` ``alerts`` ``advice`` ``targets`` ``rollups`` ``pipeline``   readers and writers
* ``ingest``       the only path on which observations are written
* ``retention``    deletion of old data
"""
