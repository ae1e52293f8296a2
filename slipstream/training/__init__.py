"""Training of drafters: prompts, the target's answers to them, the training itself."""
