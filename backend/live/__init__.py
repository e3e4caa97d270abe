"""The live runtime: runs jobs of the reference runtime in real time, and serves REST responses in Flink's format."""
