"""One forward pass and its backward passes, recorded as a Trace for methods."""
