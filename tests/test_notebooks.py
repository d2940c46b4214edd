"""The notebooks run from the first cell to the last, as scripts, and are what jupytext makes notebooks from."""

import re
import runpy
from itertools import pairwise
from pathlib import Path

import pytest

import tokenlight as tl

FOLDER = Path(__file__).parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.py"))
MARKER = re.compile(r"^# %%.*$", re.MULTILINE)


@pytest.fixture(scope="module")
def embedded():
    """Loaded once for all notebooks."""
    return tl.load()


def name_of(notebook: Path) -> str:
    return notebook.stem


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=name_of)
def test_the_notebook_runs(notebook, tmp_path, monkeypatch, embedded, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.delenv("TOKENLIGHT_NOTEBOOK_MODEL", raising=False)  # the tiny random model
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(tl, "load", lambda: embedded)
    runpy.run_path(str(notebook))
    assert capsys.readouterr().out


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=name_of)
def test_a_notebook_has_a_title_and_text_before_every_program(notebook):
    text = notebook.read_text(encoding="utf-8")
    kinds = [marker.removeprefix("# %%").strip() for marker in MARKER.findall(text)]
    assert kinds[0] == "[markdown]"
    assert "\n# # " in text.split("# %%")[1], "the first cell has no title"
    assert ("", "") not in pairwise(kinds), "two programs follow each other without a word"


def test_the_list_names_every_notebook():
    listed = re.findall(r"\]\((\w+)\.py\)", (FOLDER / "README.md").read_text(encoding="utf-8"))
    assert sorted(listed) == [name_of(notebook) for notebook in NOTEBOOKS]
