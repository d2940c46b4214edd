"""The public face: every name is found on first use, where type checkers are told that it is."""

import ast
from pathlib import Path
from pkgutil import resolve_name

import pytest

import tokenlight as tl

SOURCE = Path(str(tl.__file__)).read_text(encoding="utf-8")


def imports_for_type_checkers() -> dict[str, str]:
    """name -> where the block under TYPE_CHECKING imports it from."""
    blocks = [node for node in ast.parse(SOURCE).body if isinstance(node, ast.If)]
    imports = [one for block in blocks for one in block.body if isinstance(one, ast.ImportFrom)]
    return {alias.asname or alias.name: f"{one.module}:{alias.name}" for one in imports for alias in one.names}


def test_type_checkers_see_every_name():
    assert sorted(imports_for_type_checkers()) == sorted(tl.__all__)


@pytest.mark.parametrize("name", tl.__all__)
def test_names_at_runtime_equal_those_for_type_checkers(name):
    assert getattr(tl, name) is resolve_name(imports_for_type_checkers()[name])


def test_a_wrong_name_is_refused():
    with pytest.raises(AttributeError, match="'tokenlight' has no attribute 'explian'"):
        tl.explian  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]
