"""The user's model as a private instrumented model: what runs, what is written down while it runs, what is refused."""
