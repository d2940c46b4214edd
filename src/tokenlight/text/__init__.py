"""Texts become tokenized texts and padded batches; tokens are grouped into words, sentences and documents."""
