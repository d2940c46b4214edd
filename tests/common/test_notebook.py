"""Notebooks are known by IPython's kernel; a bar is there from the start where it should be, and gone at the end."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tokenlight.common import progress


def with_shell(shell: Any) -> ModuleType:
    module = ModuleType("IPython")
    module.get_ipython = lambda: shell  # type: ignore[attr-defined]
    return module


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (None, False),
        (with_shell(None), False),
        (with_shell(SimpleNamespace()), False),  # IPython in a terminal
        (with_shell(SimpleNamespace(kernel=object())), True),
    ],
)
def test_a_notebook_is_a_shell_with_a_kernel(module, expected, monkeypatch):
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    if module is not None:
        monkeypatch.setitem(sys.modules, "IPython", module)
    assert progress.in_notebook() is expected


def test_a_bar_in_a_notebook_appears_immediately_and_is_removed(monkeypatch):
    drawn: list[str] = []
    place = SimpleNamespace(update=lambda html: drawn.append(html.data))

    def show(html: str, replaceable: bool = False) -> Any:
        drawn.append(html)
        return place

    monkeypatch.setattr(progress, "in_notebook", lambda: True)
    monkeypatch.setattr(progress, "show_html", show)
    with progress.count_progress("measuring", 3, at_once=True) as advance:
        assert drawn == ['measuring <progress value="0" max="3"></progress> 0 of 3']
        for _ in range(progress.PASSES_PER_UPDATE):
            progress.report_forward_pass()
        assert drawn[-1].endswith("0 of 3, 10 passes")
        advance(2)
        assert "2 of 3" in drawn[-1]
    assert drawn[-1] == ""
