"""`python -m tokenlight`: the command line."""

from tokenlight.cli import app

app()
