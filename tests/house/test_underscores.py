"""Names with a leading underscore are used in their own file only."""

import ast
from collections.abc import Iterator, Set
from functools import cache
from pathlib import Path

import pytest

from tests.house.plan import PACKAGE, modules


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def own_names(tree: ast.AST) -> Iterator[str]:
    """Names with a leading underscore that a file defines: methods, attributes, fields, functions."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name
            case ast.Name(id=name, ctx=ast.Store()):
                yield name


def used_names(tree: ast.AST) -> Iterator[str]:
    """Names with a leading underscore of other objects than self and cls, and those that are imported."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                continue
            case ast.Attribute(attr=name):
                yield name
            case ast.ImportFrom(module=str(module), names=names) if module.startswith("tokenlight"):
                yield from (alias.name for alias in names)


@cache
def tree_of(path: Path) -> ast.AST:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def own(path: Path) -> frozenset[str]:
    return frozenset(name for name in own_names(tree_of(path)) if private(name))


@cache
def package_names() -> frozenset[str]:
    return frozenset().union(*map(own, modules()))


def foreign_names(tree: ast.AST, own: Set[str]) -> set[str]:
    """Private names of other files of the package; those of torch and transformers do not count."""
    return {name for name in used_names(tree) if name in package_names() - own}


def test_no_file_uses_a_private_name_of_another_file():
    names_of = {path: foreign_names(tree_of(path), own(path)) for path in modules()}
    messages = [
        f"{path.relative_to(PACKAGE)} uses {', '.join(sorted(names))}" for path, names in names_of.items() if names
    ]
    assert not messages, f"private names of another file: make them public under a good name: {messages}"


@pytest.mark.parametrize(
    "line", ["instrumented._configs", "from tokenlight.model.instrumented import _configs", "a.b()._configs.c"]
)
def test_every_kind_of_use_is_found(line):
    assert foreign_names(ast.parse(line), set()) == {"_configs"}
    assert not foreign_names(ast.parse(line), {"_configs"})
    assert not foreign_names(ast.parse("self._configs\nmodel.config._attn_implementation_internal"), set())
