"""Wire shapes. ``api`` is ours (written by the API, read by the dashboard); ``flink`` is Flink's monitoring REST."""
