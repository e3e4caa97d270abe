"""The Lab page: simulations of one or two protocols. ``page`` has the layout, ``controls`` the request, ``refresh`` the
state of the simulation, ``details`` the chosen checkpoint, and ``charts`` the charts. ``curve`` has the curve over the
cap. ``more`` has the settings without a slider, and ``guide`` is the page that explains all of them.
"""

from dashboard.pages.lab.guide import layout as guide_layout
from dashboard.pages.lab.page import layout, register

__all__ = ["guide_layout", "layout", "register"]
