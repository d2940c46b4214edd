"""Studies of our own, beside what the papers measured: one script each, named after its question."""
