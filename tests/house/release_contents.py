"""What a wheel and an sdist hold: all that the package needs, and nothing else. A part of `make release-check`."""

import sys
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

from tests.house.plan import PACKAGE

BESIDE = {"LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff", "pyproject.toml", "MANIFEST.in"}  # in an sdist
MADE = {"PKG-INFO", "setup.cfg"}  # by the build


def expected_in_wheel() -> set[str]:
    """Every file of the package, without what Python compiled."""
    files = (path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(PACKAGE.parent).as_posix() for path in files}


def problems(names: Iterable[str], expected: set[str] | None = None) -> list[str]:
    """What is missing and what does not belong; descriptions of the package aside."""
    expected = expected_in_wheel() if expected is None else expected
    found = {
        name for name in names if not name.endswith("/") and ".dist-info/" not in name and ".egg-info/" not in name
    }
    missing = [f"missing: {name}" for name in sorted(expected - found)]
    return missing + [f"does not belong: {name}" for name in sorted(found - expected)]


def wheel_problems(path: Path) -> list[str]:
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
    licence = [] if any(name.endswith("licenses/LICENSE") for name in names) else ["missing: the licence"]
    return problems(names) + licence


def sdist_problems(path: Path) -> list[str]:
    with tarfile.open(path) as sdist:
        names = [member.name.partition("/")[2] for member in sdist.getmembers() if member.isfile()]
    return problems(names, {f"src/{name}" for name in expected_in_wheel()} | BESIDE | MADE)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    found = [f"{wheel.name}: {one}" for one in wheel_problems(wheel)]
    found += [f"{sdist.name}: {one}" for one in sdist_problems(sdist)]
    if found:
        sys.exit("\n".join(found))
    print("the wheel and the sdist hold the package, and nothing else")
