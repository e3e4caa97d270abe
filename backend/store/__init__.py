"""Floor 3: PostgreSQL. Everything that is kept, and the only place that speaks SQL.

* ``postgres``     connections and the translation of their failures, COPY, paging, the server that ``up`` brings along
* ``schema``       tables as Alembic compares them, day partitions, JSON documents, arrays, migration
* ``checkpoints`` ``jobs`` ``alerts`` ``advice`` ``targets`` ``rollups`` ``pipeline``   readers and writers by aggregate
* ``ingest``       the one write path for observations
* ``retention``    what is dropped, and when
"""
