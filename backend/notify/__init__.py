"""Floor 3: sends message bodies to receivers over HTTP, with limits on time and size."""
