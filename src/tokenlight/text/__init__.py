"""Texts become token rows and padded batches; sub-words become words again."""
