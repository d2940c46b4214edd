"""An extension of griffe: what a comment says about an attribute is its documentation.

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
        if attr.docstring is None and (said := comment_on(attr)):
            attr.docstring = Docstring(said, parent=attr)

    def on_class_members(self, *, cls: Class, **more: Any) -> None:
        public = [one for one in cls.attributes.values() if isinstance(one, Attribute) and not one.name.startswith("_")]
        if not public or cls.docstring is None:
            return
        lines = [f"    {one.name}: {one.docstring.value if one.docstring else '-'}" for one in public]
        cls.docstring.value += "\n\nAttributes:\n" + "\n".join(lines)
        for one in public:
            one.docstring = None  # said in the table


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
    said = " ".join(behind or above)
    return said[:1].upper() + said[1:]


@cache
def comments_of(path: Path) -> dict[int, tuple[str, bool]]:
    """Line -> the comment there, and whether it has the line for itself."""
    source = path.read_text(encoding="utf-8")
    return {
        token.start[0]: (token.string.lstrip("# "), not token.line[: token.start[1]].strip())
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
