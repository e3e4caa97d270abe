"""The JSON documents on the wire: ``flink`` describes Flink's REST, the other modules our own API."""
