"""The Lab page: simulations of one or two protocols. ``page`` has the layout, ``controls`` the request, ``refresh`` the
state of the simulation, ``details`` the chosen checkpoint, and ``charts`` the charts.
"""

from dashboard.pages.lab.page import layout, register

__all__ = ["layout", "register"]
