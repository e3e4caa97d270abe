"""Sends alert messages to receivers over HTTP, with limits on time and size. Import layer 3 (see README)."""
