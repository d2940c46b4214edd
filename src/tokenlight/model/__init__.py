"""The user's model as a private twin: what runs, what is written down while it runs, what is refused."""
