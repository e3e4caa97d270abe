"""One job from its document to its trace: the engine that puts the parts together and runs them."""
