"""``make test-versions``: Barrierscope beside real Flink clusters of every version from 1.13 on, with Flink's defaults."""
