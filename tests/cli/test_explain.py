"""The command line on tiny checkpoints from a folder: documents on standard output, one line for what went wrong."""

import json
import re
import shutil
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import tokenlight as tl
from tests.tokenizers_ import explainer_for, model_for, tokenizer_for
from tokenlight.cli import app
from tokenlight.methods import METHODS
from tokenlight.text.tokenized_text import Chat

TEXT = "it is a good movie"
CHECKPOINTS = {
    "classifier": ("bert", "text-classification"),
    "reader": ("bert", "question-answering"),
    "tagger": ("bert", "token-classification"),
    "masked": ("bert", "fill-mask"),
    "writer": ("gpt2", "text-generation"),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("checkpoints")
    for name, (family, task) in CHECKPOINTS.items():
        model_for(family, task).save_pretrained(root / name)
        tokenizer_for(family).save_pretrained(root / name)
    return {name: str(root / name) for name in CHECKPOINTS}


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


def succeed(*arguments: str) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def fail(*arguments: str) -> str:
    """The one line on standard error."""
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("tokenlight: ")
    return line


# --- explain --------------------------------------------------------------------------------------------------------


def test_json_holds_the_explanation(folders):
    (plain,) = json.loads(succeed("explain", TEXT, "-m", folders["classifier"], "--format", "json"))
    e = tl.Explanation.from_dict(plain)
    expected = tl.load(folders["classifier"]).explain(TEXT)
    assert e == expected
    assert e.text == TEXT
    assert e.model == folders["classifier"]


def test_terminal_is_the_default(folders):
    out = succeed("explain", TEXT, "--model", folders["classifier"], "--method", "attcat")
    assert "the model says" in out
    assert "attcat" in out
    assert "good" in out
    assert "\x1b" not in out


def test_html_is_a_page(folders):
    out = succeed("explain", TEXT, "-m", folders["classifier"], "--format", "html")
    assert out.startswith("<!doctype html>")
    assert ">movie</span>" in out


@pytest.mark.parametrize("format", ["terminal", "html", "json"])
def test_output_goes_to_a_file(folders, format, tmp_path):
    path = tmp_path / "result"
    out = succeed("explain", TEXT, "-m", folders["classifier"], "--format", format, "--output", str(path))
    assert out == ""
    text = path.read_text(encoding="utf-8")
    assert "good" in text
    assert "\x1b" not in text
    assert text.endswith("\n")
    if format == "json":
        assert tl.Explanation.from_dict(json.loads(text)[0]).text == TEXT


def test_a_long_text_in_a_file_is_not_wrapped(folders, tmp_path):
    path = tmp_path / "result"
    succeed("explain", "the key " * 100, "-m", folders["classifier"], "--method", "rollout", "-o", str(path))
    assert len(path.read_text().splitlines()) == 2


def test_the_file_name_determines_the_format(folders, tmp_path):
    for name, start in (("x.html", "<!doctype html>"), ("x.JSON", "["), ("x.txt", "the model says")):
        result = run("explain", TEXT, "-m", folders["classifier"], "--method", "attcat", "-o", str(tmp_path / name))
        assert result.exit_code == 0
        assert (tmp_path / name).read_text().startswith(start)
        assert f"written to {tmp_path / name}" in result.stderr
    assert "expected a name that ends in" in fail("explain", TEXT, "-m", "./nowhere", "-o", str(tmp_path / "x.pdf"))
    assert "there is no folder" in fail("explain", TEXT, "-m", "./nowhere", "-o", str(tmp_path / "gone" / "x.html"))


def test_the_text_from_standard_input(folders):
    command = ["explain", "-", "-m", folders["classifier"], "--method", "attcat", "--format", "json"]
    result = CliRunner().invoke(app, command, input=TEXT + "\n")
    assert json.loads(result.stdout)[0]["text"] == TEXT
    assert "standard input is empty" in CliRunner().invoke(app, command, input="\n").stderr


def test_a_method_with_options_of_its_own(folders):
    arguments = ("explain", TEXT, "-m", folders["classifier"], "--format", "json")
    methods = ("--method", "integrated_gradients:steps=2", "--method", "integrated_gradients:steps=3")
    few, more = json.loads(succeed(*arguments, *methods))
    assert (few["options"]["steps"], more["options"]["steps"]) == (2, 3)
    assert few["method"] == "integrated_gradients:steps=2"
    assert "has no option" in fail("explain", TEXT, "-m", "./nowhere", "--method", "attcat:zebra=1")


def test_the_version():
    assert succeed("--version") == f"tokenlight {tl.__version__}\n"


def test_target_and_foil(folders):
    arguments = ("explain", TEXT, "-m", folders["classifier"], "--format", "json")
    (plain,) = json.loads(succeed(*arguments, "--target", "positive", "--foil", "negative"))
    assert (plain["target"], plain["foil"]) == ("positive", "negative")
    (by_number,) = json.loads(succeed(*arguments, "--target", "2", "--foil", "0"))
    assert by_number == plain


def test_several_methods_in_one_document(folders):
    arguments = ("explain", TEXT, "-m", folders["classifier"], "--method", "AttCAT", "--method", "rollout")
    assert [plain["method"] for plain in json.loads(succeed(*arguments, "--format", "json"))] == ["attcat", "rollout"]
    lines = [line.split()[0] for line in succeed(*arguments).splitlines()[1:]]
    assert [line for line in lines if line != "note:"] == ["attcat", "rollout"]


def test_a_question_with_its_context(folders):
    (plain,) = json.loads(
        succeed("explain", "who wrote it ?", "--context", "a young author", "-m", folders["reader"], "--format", "json")
    )
    assert plain["text"] == ["who wrote it ?", "a young author"]
    assert plain["target"] in "a young author"


def test_a_position(folders):
    arguments = ("explain", TEXT, "-m", folders["tagger"], "--format", "json", "--position", "4")
    (plain,) = json.loads(succeed(*arguments, "--target", "neutral"))
    assert (plain["position"], plain["target"]) == (4, "neutral")
    (predicted,) = json.loads(succeed(*arguments))
    assert predicted["target"] == predicted["prediction"]


def test_the_next_token(folders):
    (plain,) = json.loads(
        succeed(
            *("explain", "The keys to the cabinet", "-m", folders["writer"], "--format", "json"),
            *("--target", " are", "--foil", " is"),
        )
    )
    assert (plain["target"], plain["foil"]) == (" are", " is")


def test_text_that_is_not_ascii(folders):
    (plain,) = json.loads(succeed("explain", "naïve 東京 😀", "-m", folders["classifier"], "--format", "json"))
    assert plain["text"] == "naïve 東京 😀"


# --- what goes wrong ------------------------------------------------------------------------------------------------


def test_a_wrong_method_is_one_line_with_a_suggestion(folders):
    line = fail("explain", TEXT, "-m", folders["classifier"], "--method", "atcat")
    assert "no method 'atcat'. Did you mean 'attcat'?" in line


@pytest.mark.parametrize("command", [("explain", TEXT, "-m"), ("doctor",)])
@pytest.mark.parametrize("path", ["/no/such/folder", "./no-such-folder", "nobody/no-such-model"])
def test_a_missing_model_is_one_short_line(command, path):
    line = fail(*command, path)
    assert path in line
    assert len(line) < 200
    assert "http" not in line


def test_a_folder_without_a_model_is_one_short_line(tmp_path):
    line = fail("explain", TEXT, "-m", str(tmp_path))
    assert str(tmp_path) in line
    assert len(line) < 200 + len(str(tmp_path))


def test_a_damaged_config_is_one_line(tmp_path):
    (tmp_path / "config.json").write_text("{")
    assert str(tmp_path) in fail("explain", TEXT, "-m", str(tmp_path))


def test_a_model_type_that_transformers_does_not_know_is_one_line(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "spaceship", "architectures": ["SpaceshipForCausalLM"]}')
    assert "spaceship" in fail("explain", TEXT, "-m", str(tmp_path))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--target", "happy"), "no label 'happy'"),
        (("--target", "positive", "--foil", "positive"), "nothing to compare"),
        (("--task", "sentiment"), "no task 'sentiment'"),
        (("--output", "/no/such/folder/file", "--format", "json"), "/no/such/folder/file"),
        (("--output", "/no/such/folder/file"), "/no/such/folder/file"),
    ],
)
def test_wrong_arguments_are_one_line(folders, arguments, message):
    assert message in fail("explain", TEXT, "-m", folders["classifier"], *arguments)


def test_an_empty_text_is_one_line(folders):
    assert "found an empty one" in fail("explain", "  ", "-m", folders["classifier"])


def test_a_text_without_a_mask_is_one_line(folders):
    assert "expected one [MASK]" in fail("explain", TEXT, "-m", folders["masked"])


def test_an_unsupported_model_is_one_line(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]}')
    assert "T5ForConditionalGeneration has no head" in fail("explain", TEXT, "-m", str(tmp_path))


def test_a_bug_of_tokenlight_shows_its_traceback(folders, monkeypatch):
    def broken(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("a bug")

    monkeypatch.setattr(tl.Explainer, "explain_configs", broken)
    assert isinstance(run("explain", TEXT, "-m", folders["classifier"]).exception, AssertionError)


# --- the other commands ---------------------------------------------------------------------------------------------


def test_methods_lists_all():
    out = succeed("methods")
    for name, entry in METHODS.items():
        assert re.search(rf"^{name}\s", out, re.MULTILINE), name
        assert entry.title in out


@cache
def examined(folder: str) -> str:
    return succeed("doctor", folder)


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_doctor_tries_every_method(folders, name):
    out = examined(folders[name])
    family, task = CHECKPOINTS[name]
    assert type(model_for(family, task)).__name__ in out
    assert task in out
    for method in METHODS:
        assert re.search(rf"^{method}\s+(yes\s+\d+ ms|no: )", out, re.MULTILINE), method
    assert re.search(r"^attcat\s+yes", out, re.MULTILINE)


def test_doctor_prints_reasons_for_methods_that_do_not_work(folders, monkeypatch):
    from tokenlight.diagnostics import doctor

    def refuse(self: Any, text: Any, method: str = "attcat", **options: Any) -> None:
        if method == "rollout":
            raise ValueError("no rollout today")

    monkeypatch.setattr(tl.Explainer, "explain", refuse)
    findings = {finding.method: finding for finding in doctor.examine(explainer_for("bert")).findings}
    assert findings["rollout"].error == "no rollout today"
    assert findings["attcat"].error is None


def test_doctor_measures_the_memory_held_for_the_backward_pass(folders):
    out = examined(folders["classifier"])
    assert re.search(r"^rollout\s+yes.*(nothing|0\.0 MB)\s*$", out, re.MULTILINE)  # the head at most, to find its row
    assert re.search(r"^attcat\s+yes.* \d+\.\d MB\s*$", out, re.MULTILINE)


def test_help_names_the_commands():
    out = succeed("--help")
    for command in ("explain", "methods", "doctor", "demo"):
        assert command in out


def test_the_program_is_installed_under_its_name():
    (entry,) = [point for point in entry_points(group="console_scripts") if point.name == "tokenlight"]
    assert entry.load() is app


# --- generate -------------------------------------------------------------------------------------------------------


def test_generate_explains_the_generated_answer(folders, tmp_path):
    shown = succeed("generate", folders["writer"], "it is", "--answer", " a good movie", "--explain", "attn_lrp")
    assert "a good movie" in shown
    assert "log-probability" in shown
    assert re.search(r"most on: i[ts] [+−]", shown)
    file = tmp_path / "answer.json"
    assert succeed("generate", folders["writer"], "it is", "--tokens", "3", "--through", "-o", str(file)) == ""
    answer = tl.ExplainedAnswer.load(file)
    assert len(answer) == 3
    assert "were passed on to the prompt (exact)" in answer.notes[-1]


def test_answers_from_files_to_files(folders, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("one.txt").write_text("the key is here\n")
    Path("more.json").write_text(json.dumps(["they are bad"]))
    given = ["it is", "-m", folders["writer"], "--answer", " a good movie", "--documents", "one.txt"]
    given += ["--documents", "more.json", "--quantity", "log_probability"]
    for name in ("x.json", "x.parquet", "x.html"):
        assert succeed("explain", *given, "-o", name) == ""
    found, same = tl.ExplainedAnswer.load("x.json"), tl.ExplainedAnswer.load("x.parquet")
    assert found == same
    assert found.prompt == "the key is here\n\nthey are bad\n\nit is"
    assert [source.name for source in found.documents] == ["one", "document 2"]
    assert Path("x.html").read_text().startswith("<!doctype html>")
    expected = tl.load(folders["writer"]).explain_answer(found.prompt, " a good movie", quantity="log_probability")
    assert torch.equal(found.matrix, expected.matrix)
    shown = succeed("explain", *given)
    assert "a good movie" in shown
    assert json.loads(succeed("explain", *given, "--format", "json"))["answer"] == " a good movie"
    chat = [{"role": "user", "content": "it is"}, {"role": "assistant", "content": "a good movie"}]
    Path("chat.json").write_text(json.dumps({"messages": chat}))
    assert "no chat template" in fail("explain", "--messages", "chat.json", "-m", folders["writer"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give a text to explain, or a chat"),
        (["it is", "--messages", "chat.json"], "but not both"),
        (["--messages", "none.json"], "there is no file none.json"),
        (["--messages", "chat.json"], "chat.json, line 2, column 1: expected JSON"),
        (["--messages", "role.json"], "role.json: message 0: expected"),
        (["--messages", "object.json"], "found an object with 'turns'"),
        (["it is", "--documents", "role.json"], "role.json: document 1: expected a text, found {"),
        (["it is", "--answer", " a", "-o", "x.pdf"], "ends in .html, .json, .parquet"),
        (["it is", "--answer", " a", "--foil", "b"], "leave --foil out"),
        (["it is", "--answer", " a", "--method", "lrp", "--method", "attcat"], "one method at a time"),
    ],
)
def test_a_wrong_prompt_is_refused_before_the_model_is_loaded(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    Path("chat.json").write_text('[{"role"\n')
    Path("role.json").write_text('[{"role": "user"}]')
    Path("object.json").write_text('{"turns": []}')
    assert message in fail("explain", *arguments, "-m", "./nowhere")


def test_generate_gives_the_prompt_to_chat_models_as_a_user_message(folders, tmp_path):
    writer = tmp_path / "writer"
    shutil.copytree(folders["writer"], writer)
    (writer / "chat_template.jinja").write_text(
        "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    )
    for number, (options, prompt) in enumerate([((), Chat(("user",), ("it is",))), (("--plain",), "it is")]):
        file = tmp_path / f"{number}.json"
        succeed("generate", str(writer), "it is", "--answer", " a good movie", *options, "-o", str(file))
        assert tl.ExplainedAnswer.load(file).prompt == prompt


def test_generate_is_for_language_models(folders):
    assert "only language models write" in fail("generate", folders["classifier"], "it is")
    assert "no method" in fail("generate", folders["writer"], "it is", "--explain", "zebra")


def test_targets_of_several_tokens(folders):
    (plain,) = json.loads(
        succeed(
            "explain",
            "it is",
            "-m",
            folders["writer"],
            "--target",
            " a good movie",
            "--foil",
            " bad",
            "--format",
            "json",
        )
    )
    assert (plain["target"], plain["foil"]) == (" a good movie", " bad")
    assert "answer_share" in plain["extras"]
