"""The user's model as a private copy with hooks: what runs, what is captured, what is refused."""
