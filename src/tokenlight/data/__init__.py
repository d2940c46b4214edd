"""Texts and examples from files and datasets of many kinds, one row at a time."""
