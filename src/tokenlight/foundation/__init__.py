"""What every room stands on: errors, registries, whole files, progress. Knows nothing of models or texts."""
