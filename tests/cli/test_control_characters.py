"""Whatever people's files, names and texts hold, a terminal gets no control characters from it."""

import ast
import json
import logging
import shutil
import warnings
from io import StringIO
from typing import Any

import pytest
import torch
from rich.table import Table
from rich.text import Text
from safetensors.torch import load_file, save_file

from tests.cli.test_explain import run
from tests.house.plan import PACKAGE
from tests.tokenizers_ import model_for, tokenizer_for
from tokenlight.cli.load import find_and_load
from tokenlight.common.console import SafeConsole
from tokenlight.common.escaping import escape_controls, escape_html, escape_json

RED, TITLE, C1, OVERRIDE = "\x1b[31m", "\x1b]0;owned\x07", "\x9b31m", "\u202e"
EVIL = f"a{RED}{TITLE}{C1}{OVERRIDE}b"


def assert_harmless(output: str) -> None:
    kept = {character for character in output if not character.isprintable()}
    assert kept <= {"\n"}, output


@pytest.mark.parametrize("command", [("bench", "default"), ("explain-file",), ("sanity", "default")])
def test_the_header_of_a_table(tmp_path, command):
    file = tmp_path / "data.csv"
    file.write_text(f"{EVIL},other\n1,2\n", encoding="utf-8")
    out = () if command[0] == "sanity" else ("-o", str(tmp_path / "out"))
    result = run(*command, str(file), *out)
    assert result.exit_code == 2
    assert "a\\x1b[31m\\x1b]0;owned\\x07\\x9b31m\\u202eb" in result.stderr
    assert_harmless(result.output)


def test_names_of_files_and_models(tmp_path):
    for arguments in (
        ("explain", "ok", "-m", f"/{EVIL}"),
        ("explain", "ok", "-m", f"no/{EVIL}"),
        ("explain", "ok", "-o", str(tmp_path / EVIL / "x.html")),
        ("explain", "ok", "--target", EVIL),
        ("explain", "ok", "--method", EVIL),
        ("heads", str(tmp_path / f"{EVIL}.json")),
        ("corpus", str(tmp_path / EVIL)),
    ):
        result = run(*arguments)
        assert result.exit_code == 2
        assert_harmless(result.output)
    written = run("explain", "ok", "-o", str(tmp_path / f"{EVIL}.json"))
    assert written.exit_code == 0
    assert_harmless(written.output)


def test_names_of_weights_that_transformers_logs(tmp_path, monkeypatch):
    model_for("bert", "text-classification").save_pretrained(tmp_path)
    tokenizer_for("bert").save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    save_file({**weights, f"{EVIL}.weight": torch.zeros(1)}, tmp_path / "model.safetensors", {"format": "pt"})
    (handler,) = (one for one in logging.getLogger("transformers").handlers if type(one) is logging.StreamHandler)
    monkeypatch.setattr(handler, "stream", StringIO())
    find_and_load(str(tmp_path), None, False)
    logged = handler.stream.getvalue()  # type: ignore[attr-defined]
    assert "\\x1b]0;owned\\x07" in logged
    assert_harmless(logged.replace("\t", ""))


def test_warnings_of_commands(monkeypatch):
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)  # undone at the end
    assert run("methods").exit_code == 0
    assert_harmless(warnings.formatwarning(EVIL, UserWarning, f"{EVIL}.py", 1, EVIL))


def test_a_file_name_that_is_not_utf_8():
    assert escape_controls("caf\udce9") == "caf\\udce9"


def test_labels_and_paths_of_a_checkpoint(tmp_path):
    folder = tmp_path / f"model{RED}[/b]{OVERRIDE}"
    model_for("bert").save_pretrained(folder)
    tokenizer_for("bert").save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    config["id2label"] = {number: EVIL + str(number) for number in config["id2label"]}
    (folder / "config.json").write_text(json.dumps(config))
    result = run("explain", f"good {EVIL}", "-m", str(folder))
    assert result.exit_code == 0, result.output
    assert_harmless(result.output)
    file = tmp_path / "texts.txt"
    file.write_text("it is good\n" * 3)
    result = run("explain-file", str(file), "-m", str(folder), "-o", str(tmp_path / f"out{EVIL}"), "--summary")
    assert result.exit_code == 0, result.output
    assert_harmless(result.output)
    shutil.rmtree(folder)


@pytest.mark.parametrize("format", ["json", "html"])
def test_escaped_documents_on_standard_output_are_equivalent(format):
    text = f"good {C1}{OVERRIDE}{RED} movie"
    result = run("explain", text, "--format", format)
    assert result.exit_code == 0
    assert_harmless(result.stdout)
    if format == "json":
        assert json.loads(result.stdout)[0]["text"] == text


def test_escaped_json_and_html_are_equivalent():
    assert json.loads(escape_json(json.dumps([EVIL], ensure_ascii=False))) == [EVIL]
    assert escape_html(f"<p>{OVERRIDE}</p>\n") == "<p>&#x202e;</p>\n"


def test_the_console_prints_names_unchanged_and_keeps_its_colors():
    file = StringIO()
    console = SafeConsole(file=file, force_terminal=True, color_system="truecolor", width=200)
    table = Table(title=f"{EVIL}[/b]")
    table.add_column(EVIL)
    table.add_row(Text(EVIL, style="red"))
    console.print(table)
    console.print("[/b] :smile:", highlight=False)
    output = file.getvalue()
    assert "[/b] :smile:" in output
    assert "\x1b[31m" in output  # rich's own red
    assert TITLE not in output
    assert not {"\x07", "\x9b", OVERRIDE} & set(output)


def test_lines_are_printed_in_one_place():
    """`say` and the console escape; nothing else in the command line prints."""
    for path in (PACKAGE / "cli").glob("*.py"):
        calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        named = {ast.unparse(call) for call in calls}
        allowed: dict[str, set[str]] = {
            "app.py": {"typer.echo"},
            "explain.py": {"print"},  # what a model writes, without what cannot be printed
            "output.py": {"sys.stdout.write"},
        }
        assert named & {"typer.echo", "print", "sys.stdout.write", "Console"} <= allowed.get(path.name, set()), path


def test_every_console_of_the_package_escapes():
    made: dict[str, Any] = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Console":
                made[path.name] = node.lineno
    assert made == {}
