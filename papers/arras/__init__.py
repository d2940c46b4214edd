"""Arras et al., A Close Look at Decomposition-based XAI-Methods for Transformer Language Models (2025)."""
