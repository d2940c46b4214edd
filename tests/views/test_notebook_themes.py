"""Heatmaps in notebooks follow the notebook's theme, which need not be the system's."""

from typing import Any

import pytest

import tokenlight as tl
from tests.browser import chromium as chromium
from tests.browser import window as window
from tokenlight.views.drawing import DARK

pytestmark = pytest.mark.xdist_group("browser")
LIGHT = {"JupyterLab": '<body data-jp-theme-light="true">', "VS Code": '<body class="vscode-light">', "Colab": "<body>"}
DARKENED = {
    "JupyterLab": '<body data-jp-theme-light="false">',
    "VS Code": '<body class="vscode-dark">',
    "Colab": '<html theme="dark"><body>',
}
LOOK = "one => [getComputedStyle(one).backgroundColor, getComputedStyle(one).color]"


def looks(window: Any, begin: str) -> list[list[str]]:
    """Paper and ink of the heatmap, then of its strongest word."""
    page = window.new_page()
    page.set_content(begin + tl.load().explain("A charming journey.", progress=False)._repr_html_())
    found = [page.locator(what).first.evaluate(LOOK) for what in (".tokenlight", ".word.shaded")]
    page.close()
    return found


@pytest.mark.parametrize("notebook", LIGHT)
def test_dark_notebooks_have_dark_heatmaps(window, notebook):
    bright, dark = looks(window, LIGHT[notebook]), looks(window, DARKENED[notebook])
    assert bright[0] == ["rgb(255, 255, 255)", "rgb(27, 31, 36)"]
    assert dark[0] == [f"rgb{tuple(DARK.paper)}", "rgb(230, 237, 243)"]
    assert bright[1][0] != dark[1][0]
