"""Floor 3: carries bodies to receivers over HTTP, with a bound on everything. What is sent is decided elsewhere."""
