"""Colors that can be read and told apart, in light and dark rooms; said once in Python and once for the browser."""

import re
from dataclasses import astuple, fields

import pytest

from tokenlight.views import curve_chart, html
from tokenlight.views.drawing import DARK, LIGHT, Color, Theme, ink, luminance, rgb, shade, tint
from tokenlight.views.interactive import static

THEMES = {"light": LIGHT, "dark": DARK}
TEXT, GRAPHICS = 4.5, 3.0  # WCAG AA: contrast of letters, and of lines and edges that mean something
LETTERS = ("ink", "quiet", "faint", "error", "note", "accent")
KINDS = ("syntactic", "positional", "both", "unknown", "accent")
VARIABLE = re.compile(r"--([\w-]+):\s*(#[0-9a-f]{3,6})")


def contrast(one: Color, other: Color) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def variables(style: str) -> dict[str, Color]:
    return {name: rgb(long_form(color)) for name, color in VARIABLE.findall(style)}


def long_form(color: str) -> str:
    return color if len(color) == 7 else "#" + "".join(2 * digit for digit in color[1:])


def page_colors(name: str) -> dict[str, Color]:
    """Of style.css; what the dark theme does not say is as in the light one."""
    light, dark = static("style.css").split("prefers-color-scheme: dark", 1)
    found = variables(light)
    return found if name == "light" else found | variables(dark.split("* { box-sizing", 1)[0])


def document_colors(name: str) -> dict[str, Color]:
    return variables(html.LIGHT_COLORS if name == "light" else html.DARK_COLORS)


@pytest.mark.parametrize("name", THEMES)
def test_the_browser_mixes_the_same_shades(name: str) -> None:
    block = re.search(rf"{name}: \{{(.*?)\}},", static("heatmap.js"), re.DOTALL)
    assert block is not None
    written = {part: tuple(map(int, numbers.split(","))) for part, numbers in re.findall(r"(\w+): \[(.*?)\]", block[1])}
    assert written == dict(zip((one.name for one in fields(Theme)), astuple(THEMES[name]), strict=True))
    assert page_colors(name)["card"] == document_colors(name)["paper"] == THEMES[name].paper


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
def test_letters_can_be_read_on_every_shade(theme: Theme) -> None:
    for mixed in (shade, tint):
        for step in range(-100, 101):
            background = mixed(step / 100, theme)
            assert contrast(background, ink(background)) >= TEXT, (mixed, step)


@pytest.mark.parametrize("name", THEMES)
def test_letters_of_pages_can_be_read(name: str) -> None:
    for colors, papers in ((page_colors(name), ("card", "page")), (document_colors(name), ("paper", "page"))):
        for letters in LETTERS:
            for paper in papers:
                if letters in colors:
                    assert contrast(colors[letters], colors[paper]) >= TEXT, (letters, paper)


@pytest.mark.parametrize("name", THEMES)
def test_controls_and_kinds_of_heads_can_be_seen(name: str) -> None:
    colors = page_colors(name)
    assert contrast(colors["edge"], colors["card"]) >= GRAPHICS
    for kind in KINDS:
        assert contrast(colors[kind], colors[f"on-{kind}"]) >= TEXT, kind


@pytest.mark.parametrize("name", THEMES)
def test_curves_can_be_seen_and_are_the_same_in_reports(name: str) -> None:
    """On the page the names of curves are written in their colors."""
    colors, paper = page_colors(name), THEMES[name].paper
    here = [colors[f"c{i}"] for i in range(10)]
    dark = curve_chart.DARK_COLORS
    there = [rgb(one if name == "light" else dark[one]) for one in curve_chart.COLORS]
    controls = [rgb(one if name == "light" else dark[one]) for one in curve_chart.CONTROL_COLORS]
    assert here == there
    assert len(set(here)) == len(here)
    assert all(contrast(one, paper) >= TEXT for one in here)
    assert all(contrast(one, paper) >= GRAPHICS for one in controls)
