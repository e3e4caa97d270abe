"""The data pipeline, which runs PySpark over the stored history. ``java`` does not import pyspark."""
