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
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    options = [
        parameter for parameter in command.params if parameter.param_type_name == "option" and parameter.name != "help"
    ]
    usage = " ".join(["tokenlight", name, *map(written, arguments), *(["[OPTIONS]"] if options else [])])
    parts = [f"## tokenlight {name}", str(command.help or "").strip(), f"```text\n{usage}\n```"]
    if arguments or options:
        rows = [
            f"| {names(parameter)} | {cell(parameter.help)} | {default(parameter)} |"
            for parameter in (*arguments, *options)
        ]
        parts.append("\n".join(["| | meaning | default |", "|---|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def written(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return name if argument.required else f"[{name}]"


def names(parameter: Any) -> str:
    shown = (
        [parameter.metavar or parameter.name.upper()]
        if parameter.param_type_name == "argument"
        else [*parameter.opts, *parameter.secondary_opts]
    )
    return ", ".join(f"`{name}`" for name in shown)


def cell(text: str | None) -> str:
    """In one line of a table."""
    return re.sub(r"\s+", " ", text or "").replace("|", "\\|")


def default(parameter: Any) -> str:
    """The default value; nothing if it is empty or computed."""
    if parameter.required:
        return "required"
    plain = isinstance(parameter.default, str | int | float) and parameter.default not in ("", False)
    return f"`{parameter.default}`" if plain else ""
