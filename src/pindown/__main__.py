"""``python -m pindown`` is the command line."""

from pindown.cli import app

app()
