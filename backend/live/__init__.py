"""The live runtime: jobs that run in real time, and their REST in Flink's form."""
