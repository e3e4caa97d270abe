"""The page of a job's backtest. ``page`` has the layout, and ``following`` starts, follows, cancels and shows it."""

from dashboard.pages.backtest.page import layout, register

__all__ = ["layout", "register"]
