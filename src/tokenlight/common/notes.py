"""Notes of results: sentences for readers, with a code by which programs recognize them."""

from typing import Any


class Note(str):
    """What a reader should know of a result: the text itself, as a string, and the code of its kind.

    In JSON, tables and views it is its text. A note that was read from a file has no code.
    """

    code: str

    def __new__(cls, code: str, text: str) -> "Note":
        note = super().__new__(cls, text)
        note.code = code
        return note

    def __getnewargs__(self) -> tuple[Any, ...]:  # for pickle and copy
        return self.code, str(self)


def note_code(note: str) -> str:
    """The code of a note; "" if it was read from a file."""
    return note.code if isinstance(note, Note) else ""
