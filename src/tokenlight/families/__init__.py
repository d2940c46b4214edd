"""The table of models: a tiny model of every text family of transformers, and what every method does on it."""
