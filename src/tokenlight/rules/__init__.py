"""Relevance propagation as data: tables {torch function: rule}, under which value × gradient is relevance."""
