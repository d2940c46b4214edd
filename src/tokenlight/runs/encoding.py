"""Texts in tokens, all at once; one that cannot be read spoils no other."""

from collections.abc import Callable, Sequence

from tokenlight.text.rows import Row, Text


def encode_each(encode: Callable[[Sequence[Text]], list[Row]], texts: Sequence[Text]) -> list[Row | Exception]:
    """The rows; in place of one the error, where a text is at fault."""
    if not texts:
        return []
    try:
        return [*encode(texts)]
    except Exception as error:
        if len(texts) == 1:
            return [error]
    return [one for text in texts for one in encode_each(encode, [text])]
