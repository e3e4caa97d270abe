"""The jobs of the pipeline. Each job has a module, which reads data, transforms it, and writes the result."""
