"""The page of one checkpoint."""

from dashboard.pages.checkpoint.page import layout, register

__all__ = ["layout", "register"]
