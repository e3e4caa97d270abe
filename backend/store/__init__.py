"""Floor 3: PostgreSQL. Everything that is kept, and the only place that speaks SQL.

* ``engine``       connections, and how their failures are translated
* ``tables``       the schema, as Alembic compares it
* ``migrate``      bring a database to this version's schema
* ``embedded`` ``leftovers``   the server that ``up`` brings along, and what a killed one left
* ``partitions``   day partitions: ahead, on demand, and within what range
* ``ingest``       the one write path for observations (decisions.md, "Writing")
* ``targets`` ``jobs`` ``checkpoints`` ``pressure`` ``retention``   one repository module an aggregate
"""
