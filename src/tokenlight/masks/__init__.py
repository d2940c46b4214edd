"""Head masks: through which attention heads relevance flows."""
