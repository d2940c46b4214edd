"""Which part of the data a command reads."""

from typing import Any

import pytest
import typer

from tokenlight.cli import app


@pytest.mark.parametrize("command", ["bench", "sanity", "heads", "calibrate", "explain-file"])
def test_commands_that_read_data_take_a_part_of_it(command: str):
    root: Any = typer.main.get_command(app)
    options = {option for parameter in root.commands[command].params for option in parameter.opts}
    assert {"--limit", "--sample", "--seed"} <= options
