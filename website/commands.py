"""The page of the command line's reference, from the commands themselves."""

import re
from typing import Any

from typer.main import get_command

from tokenlight.cli import app

INTRODUCTION = """# The command line

Every command, its arguments and its options, as `tokenlight COMMAND --help` prints them.
"""


def commands_page() -> str:
    commands: dict[str, Any] = getattr(get_command(app), "commands")  # noqa: B009  # the root is a group of commands
    listed = "\n".join(f"- [`tokenlight {name}`](#tokenlight-{name})" for name in commands)
    return "\n".join([INTRODUCTION, listed, "", *(section(name, command) for name, command in commands.items())])


def section(name: str, command: Any) -> str:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option" and one.name != "help"]
    usage = " ".join(["tokenlight", name, *(written(one) for one in arguments), *(["[OPTIONS]"] if options else [])])
    parts = [f"## tokenlight {name}", str(command.help or "").strip(), f"```text\n{usage}\n```"]
    if arguments or options:
        rows = [f"| {names(one)} | {cell(one.help)} | {default(one)} |" for one in (*arguments, *options)]
        parts.append("\n".join(["| | what it says | default |", "|---|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def written(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return name if argument.required else f"[{name}]"


def names(one: Any) -> str:
    shown = [one.metavar or one.name.upper()] if one.param_type_name == "argument" else [*one.opts, *one.secondary_opts]
    return ", ".join(f"`{name}`" for name in shown)


def cell(text: str | None) -> str:
    """In one line of a table."""
    return re.sub(r"\s+", " ", text or "").replace("|", "\\|")


def default(one: Any) -> str:
    """What holds if nobody says it: nothing to show for what is empty, computed or required."""
    if one.required:
        return "required"
    plain = isinstance(one.default, str | int | float) and one.default not in ("", False)
    return f"`{one.default}`" if plain else ""
