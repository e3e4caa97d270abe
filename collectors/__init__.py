"""Reads targets and passes observations to the store. Also contains ``barrierscope diagnose``."""
