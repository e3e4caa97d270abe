"""Reads and writes the data of alerting: rules, episodes, incidents, silences, receivers, outbox, evaluator's lease."""
