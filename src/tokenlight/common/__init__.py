"""What every other folder builds on: errors, files, progress, registries. Knows nothing of models or texts."""
