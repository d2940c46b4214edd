"""Texts in, explanations out: batches, shared passes, memory, notes."""
