from tokenlight.cli import app

app()
