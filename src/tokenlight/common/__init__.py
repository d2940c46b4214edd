"""Shared by all other folders: errors, files, progress, registries. Independent of models and texts."""
