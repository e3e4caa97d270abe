"""How alerts are sent to each kind of receiver: one module for each kind."""
