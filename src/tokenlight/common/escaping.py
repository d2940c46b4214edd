"""Escapes of control characters in text for a terminal."""

BIDIRECTIONAL = (
    0x061C,
    0x200E,
    0x200F,
    *range(0x202A, 0x202F),
    *range(0x2066, 0x206A),
)  # they reorder the text after them
BREAKS = (0x2028, 0x2029)  # line and paragraph separator
CONTROLS = (*range(0x20), *range(0x7F, 0xA0), *BIDIRECTIONAL, *BREAKS)  # C0, DEL and C1 first
SURROGATES = range(0xD800, 0xE000)  # bytes of file names that are not UTF-8: a terminal cannot print them at all


def escaped(code: int) -> str:
    """Escape sequence in Python's notation: \\x1b, \\u202e."""
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


ESCAPES = {code: escaped(code) for code in (*CONTROLS, *SURROGATES)}
ESCAPES_IN_DOCUMENTS = {code: text for code, text in ESCAPES.items() if chr(code) not in "\n\t"}
ESCAPES_IN_JSON = {code: f"\\u{code:04x}" for code in ESCAPES_IN_DOCUMENTS}
ESCAPES_IN_HTML = {code: f"&#x{code:x};" for code in ESCAPES_IN_DOCUMENTS if code not in SURROGATES}


def escape_controls(text: str) -> str:
    """Escape all control characters, for a message of one line."""
    return text.translate(ESCAPES)


def escape_in_document(text: str) -> str:
    """Escape control characters but line breaks and tabs, for text of several lines."""
    return text.translate(ESCAPES_IN_DOCUMENTS)


def escape_json(document: str) -> str:
    """Escape control characters in a JSON document; the data stay equal."""
    return document.translate(ESCAPES_IN_JSON)


def escape_html(document: str) -> str:
    """Escape control characters in an HTML document; it renders equally."""
    return document.translate(ESCAPES_IN_HTML)
