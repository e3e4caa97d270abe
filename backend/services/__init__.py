"""Floor 4: use cases. They gather what the store holds, ask the analysis, and own the transaction."""
