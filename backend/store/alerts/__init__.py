"""Alerting in the store: rules, episodes, silences, receivers, the outbox, and the evaluator's lease."""
