"""Barrierscope's server side: domain, runtime, analysis, store, services and API, on floors (see README)."""
