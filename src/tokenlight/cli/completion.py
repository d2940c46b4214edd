"""What the shell offers behind options that take names; some shells show what papers call them beside it."""

from tokenlight.cli.catalogue import read_catalog


def complete_method(incomplete: str) -> list[tuple[str, str]]:
    rows = read_catalog().methods
    return [(row.name, f"{row.title}, {row.paper}") for row in rows if row.name.startswith(incomplete)]


def complete_metric(incomplete: str) -> list[tuple[str, str]]:
    return [(name, title) for name, title in read_catalog().metrics.items() if name.startswith(incomplete)]


def complete_protocol(incomplete: str) -> list[str]:
    return [name for name in read_catalog().protocols if name.startswith(incomplete)]


def complete_task(incomplete: str) -> list[str]:
    return [name for name in read_catalog().tasks if name.startswith(incomplete)]
