"""A program: asks the command line what it can answer without a model, and prints the answers as JSON.

All in one process, so that Python starts once. `heavy` names the question at which torch or transformers came.
"""

import json
import os
import sys
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

heavy: dict[str, str] = {}


def look_for_heavy_modules(question: str) -> None:
    for module in ("torch", "transformers"):
        if module in sys.modules:
            heavy.setdefault(module, question)


def ask(app: Any, words: list[str], **environment: str) -> dict[str, Any]:
    """The output of a command, and its exit code."""
    output, code = StringIO(), None
    os.environ.update(environment)
    try:
        with redirect_stdout(output):
            app(words, prog_name="tokenlight")
    except SystemExit as end:
        code = end.code
    finally:
        for name in environment:
            del os.environ[name]
    look_for_heavy_modules(" ".join([*words, *environment.values()]))
    return {"code": code, "text": output.getvalue()}


def complete(app: Any, line: str) -> dict[str, Any]:
    """The completions that bash gets at the end of the line."""
    last = str(len(line.split(" ")) - 1)
    return ask(app, [], _TOKENLIGHT_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=last)


def main(lines: list[str]) -> None:
    import tokenlight

    names = dir(tokenlight)
    look_for_heavy_modules("import tokenlight")

    from tokenlight.cli import app

    commands = [command.name or command.callback.__name__ for command in app.registered_commands]  # type: ignore[union-attr]
    answers = {
        "names": names,
        "help": {name: ask(app, [*name.split(), "--help"]) for name in ("", *commands)},
        "methods": ask(app, ["methods"]),
        "completed": {line: complete(app, line) for line in lines},
    }
    print(json.dumps({"heavy": heavy, **answers}))


if __name__ == "__main__":
    main(sys.argv[1:])
