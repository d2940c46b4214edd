"""The plan of the house: its rooms from the ground up. Each imports only from rooms before it."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "tokenlight"
LAYERS = (  # those of one level stand side by side: none imports another
    ("_compat",),
    ("common",),
    ("rules", "text", "embedded"),
    ("model",),
    ("tasks",),
    ("record", "heads"),
    ("methods", "results", "data"),
    ("explain", "views"),
    ("metrics", "diagnostics"),
    ("runs",),
    ("bench", "corpus", "calibration"),
    ("serve",),
    ("cli",),
)
HEIGHT = {room: height for height, rooms in enumerate(LAYERS) for room in rooms}
# Methods of results that do what people would look for there: e.show(), e.evaluate(), table.to_latex().
SHORTCUTS = {
    "results/explanation.py": {
        "views",
        "explain",
        "metrics",
    },
    "results/explained_answer.py": {"explain", "views"},
    "results/units.py": {"views"},
    "results/tables.py": {"views"},
    "heads/count.py": {"explain", "runs"},  # takes an Explainer
}


def modules() -> list[Path]:
    """Every file of the package, without the folders' own `__init__`s that say nothing but what the room is for."""
    return sorted(PACKAGE.rglob("*.py"))


def imported_rooms(source: str) -> Iterator[str]:
    """The rooms of all imports in a file, also of those inside functions."""
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "tokenlight":
            names = [f"tokenlight.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [node.module]
        for name in names:
            parts = name.split(".")
            if parts[0] == "tokenlight" and len(parts) > 1:
                yield parts[1]
