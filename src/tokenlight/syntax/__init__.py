"""Sentences with their dependency trees, from treebanks and parsers, laid over tokens."""
