"""The page of what-ifs on a job. ``page`` has the layout, ``controls`` the sliders, ``answers`` what is predicted for
their position, ``confirming`` the run on the runtime, and ``applying`` the change and what then happened.
"""

from dashboard.pages.whatif.page import layout, register

__all__ = ["layout", "register"]
