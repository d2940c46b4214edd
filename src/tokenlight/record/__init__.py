"""One forward pass and its backward passes become a Trace; methods that ask again get a Probe."""
