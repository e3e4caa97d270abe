"""The log of the rollup pipeline and of the Spark demo, and the rollups that PostgreSQL computes itself."""
