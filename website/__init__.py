"""What builds the documentation site beside its Markdown: `make docs`."""
