"""The core without extras: it works, and calls that need an extra raise an error that names it. Runs without pytest.

`make test-core` runs it where nothing but the core is installed; with --hide it hides the extras that there are.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

EXTRAS = {
    "pandas": ("pandas",),
    "syntax": ("spacy",),
    "figures": ("matplotlib",),
    "bench": ("pyarrow", "datasets"),
    "serve": ("starlette", "uvicorn"),
    "scale": ("pyarrow", "ray"),
    "large": ("accelerate",),
}
TEXT = "A charming and often affecting journey."


def hide() -> None:
    """Python finds no package of an extra from now on, and no version of one."""
    hidden = {package for packages in EXTRAS.values() for package in packages}
    for package in hidden:
        sys.modules[package] = None  # pyright: ignore[reportArgumentType]
    found = metadata.version

    def visible(name: str) -> str:
        if name in hidden:
            raise metadata.PackageNotFoundError(name)
        return found(name)

    metadata.version = visible


def check_nothing_else_is_here() -> None:
    found = [package for packages in EXTRAS.values() for package in packages if find_spec(package)]
    assert not found, f"not the core alone: {found} are here, too"


def check_core(folder: Path) -> None:
    """What the README promises without an extra."""
    import tokenlight as tl

    assert tl.__version__ == metadata.version("tokenlight"), (tl.__version__, metadata.version("tokenlight"))
    e = tl.load().explain(TEXT, "attn_lrp")
    assert e.prediction == "positive", e.prediction
    assert "charming" in {word.text for word in e.top(2)}, e.top(2)
    e.save(folder / "saved.json")
    assert tl.Explanation.load(folder / "saved.json") == e
    assert "charming" in e.to_html()
    assert "charming" in run("demo", "--output", str(folder / "demo.html"))
    assert "attn_lrp" in (folder / "demo.html").read_text(encoding="utf-8")


def run(*words: str) -> str:
    """The output of a command."""
    from typer.testing import CliRunner

    from tokenlight.cli import app

    return CliRunner().invoke(app, words).output


def needs(folder: Path) -> list[tuple[str, str, Callable[[], object]]]:
    """Calls that need an extra: the extra, the expected error, and the call."""
    import tokenlight as tl
    from tokenlight.heads.parses import load_spacy
    from tokenlight.views.drawing import new_figure

    explainer = tl.load()
    (folder / "texts.txt").write_text(TEXT)
    (folder / "texts.parquet").write_bytes(b"PAR1")
    source = tl.DataSource(folder / "texts.parquet")
    hub = tl.DataSource("hf:stanfordnlp/sst2", split="test")
    workers = tl.Workers("ray", 1)
    return [
        ("pandas", "to_pandas needs pandas", explainer.explain(TEXT, "rollout").to_pandas),
        ("syntax", "parsing needs spacy", load_spacy),
        ("figures", "a figure needs matplotlib", lambda: new_figure(1, 1)),
        ("bench", "reading Parquet needs pyarrow", lambda: [list(rows) for rows in source.tables()]),
        ("bench", "reading Parquet needs pyarrow", source.count),
        ("bench", "needs datasets", lambda: [list(rows) for rows in hub.tables()]),
        ("scale", "Parquet needs pyarrow", lambda: tl.explain_dataset(explainer, [TEXT], folder / "out")),
        (
            "scale",
            'engine="ray" needs',
            lambda: tl.benchmark(explainer, [TEXT], ["rollout"], ["aopc"], workers=workers),
        ),
    ]


def check_needs(folder: Path) -> None:
    for extra, what, call in needs(folder):
        check_error(output_of(call), extra, what)
    check_error(" ".join(run("serve").split()), "serve", "the page needs")


def output_of(call: Callable[[], object]) -> str:
    """The error of a package that is missing."""
    try:
        call()
    except ImportError as error:
        return str(error)
    return "nothing"


def check_error(message: str, extra: str, what: str) -> None:
    for part in (what, f'pip install "tokenlight[{extra}]"'):
        assert part in message, f"expected an error with {part!r}, found: {message}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hide", action="store_true", help="hide the extras that are installed")
    if parser.parse_args().hide:
        hide()
    check_nothing_else_is_here()
    with tempfile.TemporaryDirectory() as folder:
        check_core(Path(folder))
        check_needs(Path(folder))
    print("the core works without extras, and errors name the missing extra")


if __name__ == "__main__":
    main()
