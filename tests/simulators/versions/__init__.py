"""``make test-versions``: Barrierscope beside real Flink clusters with Flink's defaults, from 1.13 on."""
