"""What-ifs: a job's model from the stored evidence, predictions of it, and their confirmation on the runtime."""
