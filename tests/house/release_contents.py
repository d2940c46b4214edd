"""What a wheel and an sdist hold: the package as it is here, and nothing else. A part of `make release-check`."""

import sys
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from tests.house.plan import PACKAGE, ROOT

BESIDE = ("LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff", "pyproject.toml", "MANIFEST.in")  # in an sdist
DESCRIPTIONS = (".dist-info/", ".egg-info/")  # written by the build, as are the next two
WRITTEN = ("PKG-INFO", "setup.cfg")


def package_files() -> dict[str, bytes]:
    """Every file of the package, without what Python compiled."""
    files = (path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(PACKAGE.parent).as_posix(): path.read_bytes() for path in files}


def problems(found: Mapping[str, bytes], expected: Mapping[str, bytes]) -> list[str]:
    """What is missing, what does not belong, and what differs: a build may take old files that lie about."""
    ours = {name for name in found if name not in WRITTEN and not any(part in name for part in DESCRIPTIONS)}
    return [
        *(f"missing: {name}" for name in sorted(expected.keys() - ours)),
        *(f"does not belong: {name}" for name in sorted(ours - expected.keys())),
        *(f"not as it is here: {name}" for name in sorted(ours & expected.keys()) if found[name] != expected[name]),
    ]


def wheel_problems(path: Path) -> list[str]:
    with zipfile.ZipFile(path) as wheel:
        found = {name: wheel.read(name) for name in wheel.namelist() if not name.endswith("/")}
    license = [] if any(name.endswith("licenses/LICENSE") for name in found) else ["missing: the license"]
    return problems(found, package_files()) + license


def sdist_problems(path: Path) -> list[str]:
    with tarfile.open(path) as sdist:
        files = {one.name.partition("/")[2]: sdist.extractfile(one) for one in sdist.getmembers() if one.isfile()}
        found = {name: file.read() for name, file in files.items() if file is not None}
    beside = {name: (ROOT / name).read_bytes() for name in BESIDE}
    return problems(found, {f"src/{name}": data for name, data in package_files().items()} | beside)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    faults = [f"{wheel.name}: {one}" for one in wheel_problems(wheel)]
    faults += [f"{sdist.name}: {one}" for one in sdist_problems(sdist)]
    if faults:
        sys.exit("\n".join(faults))
    print("the wheel and the sdist hold the package as it is here, and nothing else")
