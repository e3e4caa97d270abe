"""The data pipeline: PySpark over our own history. ``java`` is free of pyspark; every other module may need it."""
