"""What ``/metrics`` says about the fleet: its jobs, its targets and the store."""
