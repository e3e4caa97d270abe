"""Use cases about alerts: evaluate, deliver, list, silence, send to receivers."""
