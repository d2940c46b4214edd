"""Memory sizes and counts as readable text."""


def describe_bytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def describe_count(number: int, what: str) -> str:
    """For example "1 text" or "2,000 texts"."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
