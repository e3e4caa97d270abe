"""Backtests of single jobs: requests, and their run by a worker."""
