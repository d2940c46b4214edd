"""The benchmark: methods × metrics on a model and its data."""
