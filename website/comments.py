"""An extension of griffe: comments on attributes become their documentation.

The package documents fields by comments, where they are read: on their own line, or right above. The reference shows
them as a table of attributes.
"""

import io
import tokenize
from functools import cache
from pathlib import Path
from typing import Any

from griffe import Attribute, Class, Docstring, Extension


class Comments(Extension):
    """Comments become the docstrings of attributes, and those of a class one table."""

    def on_attribute_instance(self, *, attr: Attribute, **more: Any) -> None:
        if attr.docstring is None and (comment := comment_on(attr)):
            attr.docstring = Docstring(comment, parent=attr)

    def on_class_members(self, *, cls: Class, **more: Any) -> None:
        attributes = [attr for attr in cls.attributes.values() if isinstance(attr, Attribute)]
        public = [attr for attr in attributes if not attr.name.startswith("_")]
        if not public or cls.docstring is None:
            return
        lines = [f"    {attr.name}: {attr.docstring.value if attr.docstring else '-'}" for attr in public]
        cls.docstring.value += "\n\nAttributes:\n" + "\n".join(lines)
        for attr in public:
            attr.docstring = None  # it is in the table


def comment_on(attribute: Attribute) -> str:
    """Behind the attribute, or above it where nothing is behind it."""
    if not isinstance(attribute.filepath, Path) or attribute.lineno is None:
        return ""
    comments = comments_of(attribute.filepath)
    end = attribute.endlineno or attribute.lineno
    behind = [
        text
        for line in range(attribute.lineno, end + 1)
        for text, alone in [comments.get(line, ("", True))]
        if not alone
    ]
    above = []
    line = attribute.lineno - 1
    while line in comments and comments[line][1]:
        above.insert(0, comments[line][0])
        line -= 1
    comment = " ".join(behind or above)
    return comment[:1].upper() + comment[1:]


@cache
def comments_of(path: Path) -> dict[int, tuple[str, bool]]:
    """Line -> the comment there, and whether it has the line for itself."""
    source = path.read_text(encoding="utf-8")
    return {
        token.start[0]: (token.string.lstrip("# "), not token.line[: token.start[1]].strip())
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
