"""The place of the listener's jar, which Spark loads by its settings, without a change of the job.

The source is beside it, in ``java``. ``make spark-jar`` builds the jar.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

CLASS: Final = "barrierscope.spark.BarrierscopeListener"
"""The class that the setting ``spark.sql.streaming.streamingQueryListeners`` names."""
JAR: Final = Path(__file__).parent / "jars" / "barrierscope-spark-listener.jar"


def path() -> str:
    """Return the absolute path of the jar."""
    return str(JAR.resolve())
