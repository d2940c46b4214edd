"""The order of the package's folders, from the lowest level up. Each folder imports only from levels below its own."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "tokenlight"
LAYERS = (  # folders of one level do not import each other
    ("_compat",),
    ("common",),
    ("rules", "text", "embedded"),
    ("model", "results"),
    ("heads",),
    ("tasks", "views"),
    ("record",),
    ("methods", "data"),
    ("explain",),
    ("metrics", "diagnostics"),
    ("runs",),
    ("bench", "corpus", "calibration"),
    ("serve",),
    ("cli",),
)
HEIGHT = {folder: height for height, folders in enumerate(LAYERS) for folder in folders}
# Methods of results that call higher levels: e.show(), e.evaluate(), table.to_latex().
SHORTCUTS = {
    "results/explanation.py": {
        "views",
        "explain",
        "metrics",
        "tasks",
    },
    "results/explained_answer.py": {"explain", "views"},
    "results/units.py": {"views"},
    "results/tables.py": {"views"},
    "heads/count.py": {"explain", "runs"},  # takes an Explainer
}


def modules() -> list[Path]:
    """Every Python file of the package."""
    return sorted(PACKAGE.rglob("*.py"))


def imported_folders(source: str, for_types: bool = True) -> Iterator[str]:
    """The folders of all imports in a file, also of those inside functions; or not of those for type checkers alone."""
    tree = ast.parse(source)
    skipped = set() if for_types else {id(node) for branch in type_checking_branches(tree) for node in ast.walk(branch)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
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


def type_checking_branches(tree: ast.Module) -> Iterator[ast.stmt]:
    """The statements under `if TYPE_CHECKING:`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from node.body
