"""Studies of our own, which no paper has: `python -m studies.NAME --help`."""
