"""A leading underscore is a promise: nobody outside the file depends on the name."""

import ast
from collections.abc import Iterator, Set
from functools import cache
from pathlib import Path

import pytest

from tests.house.plan import PACKAGE, modules


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def own_names(tree: ast.AST) -> Iterator[str]:
    """Underscored names that a file makes: methods, attributes, fields, functions."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name
            case ast.Name(id=name, ctx=ast.Store()):
                yield name


def used_names(tree: ast.AST) -> Iterator[str]:
    """Underscored names of other objects than the object itself, and underscored names that are imported."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                continue
            case ast.Attribute(attr=name):
                yield name
            case ast.ImportFrom(module=str(module), names=names) if module.startswith("tokenlight"):
                yield from (one.name for one in names)


@cache
def tree_of(path: Path) -> ast.AST:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def own(path: Path) -> frozenset[str]:
    return frozenset(name for name in own_names(tree_of(path)) if private(name))


@cache
def ours() -> frozenset[str]:
    return frozenset().union(*map(own, modules()))


def reaches_into(tree: ast.AST, own: Set[str]) -> set[str]:
    """Names of ours that belong to other files; those of torch and transformers are none of ours."""
    return {name for name in used_names(tree) if name in ours() - own}


def test_no_file_reaches_into_anothers_underscore():
    found = {path: reaches_into(tree_of(path), own(path)) for path in modules()}
    said = [f"{path.relative_to(PACKAGE)} uses {', '.join(sorted(names))}" for path, names in found.items() if names]
    assert not said, f"of another file: make it public under a good name: {said}"


@pytest.mark.parametrize(
    "line", ["twin._configs", "from tokenlight.model.instrumented import _configs", "a.b()._configs.c"]
)
def test_the_check_sees_every_kind_of_use(line):
    assert reaches_into(ast.parse(line), set()) == {"_configs"}
    assert not reaches_into(ast.parse(line), {"_configs"})
    assert not reaches_into(ast.parse("self._configs\nmodel.config._attn_implementation_internal"), set())
