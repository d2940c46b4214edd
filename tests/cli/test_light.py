"""What can be answered without a model is answered without torch, whose import takes seconds."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).with_name("answers_without_torch.py")
COMPLETED = {
    "tokenlight met": ["methods"],
    "tokenlight explain --method attc": ["attcat"],
    "tokenlight explain --format j": ["json"],
    "tokenlight bench model data --method attcat --method gl": ["globenc"],
    "tokenlight bench model data --metric aop": ["aopc"],
    "tokenlight bench model data --preset arr": ["arras"],
    "tokenlight sanity --method mask": ["mask_lrp"],
    "tokenlight calibrate --method attn": ["attn_lrp"],
    "tokenlight explain-file --method zpl": ["zplus_lrp"],
    "tokenlight corpus --method zpl": ["zplus_lrp"],
    **{
        f"tokenlight {command} --task fill": ["fill-mask"]
        for command in ("explain", "explain-file", "bench", "sanity", "calibrate", "heads", "serve", "doctor")
    },
}


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    ran = subprocess.run([sys.executable, str(PROGRAM), *COMPLETED], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_help_and_errors_do_not_import_torch(answers):
    assert answers["heavy"] == {}


def test_names_are_listed_before_they_are_imported(answers):
    assert {"load", "Explainer", "METHODS", "__version__"} <= set(answers["names"])


def test_every_command_has_help(answers):
    assert {"explain", "methods", "bench", "serve"} <= set(answers["help"])
    for name, answer in answers["help"].items():
        assert answer["code"] == 0
        assert name in answer["text"]


def test_methods_are_listed(answers):
    assert answers["methods"]["code"] == 0
    assert "attn_lrp" in answers["methods"]["text"]


@pytest.mark.parametrize("line", COMPLETED)
def test_the_shell_completes(line, answers):
    assert answers["completed"][line]["text"].split() == COMPLETED[line]
