"""Attention heads: head masks, what each head follows, and dependency parses to count it by."""
