"""The live runtime: jobs that run on wall time, and the Flink-shaped REST that shows them."""
