"""Diagnostics of models: what methods need and give on a model, and the sweep over all families of transformers."""
