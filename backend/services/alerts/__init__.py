"""Use cases about alerts: evaluate rules, deliver alerts, list incidents, and manage rules, silences and receivers."""
