"""The data pipeline, which runs PySpark over the stored history. ``java`` and ``run_log`` do not import pyspark."""
