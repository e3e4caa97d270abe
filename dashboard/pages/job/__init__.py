"""The page of one job."""

from dashboard.pages.job.page import layout, register

__all__ = ["layout", "register"]
