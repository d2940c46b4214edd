"""Whoever uses the package from typed code is told what everything takes and gives. A part of `make lint`.

pyright looks at all that can be imported, which takes as long as the rest of its work: both run side by side.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.house.plan import PACKAGE


def find_problems() -> list[str]:
    """What is not known of a public name."""
    tools = Path(sys.executable).parent  # pyright finds torch through the Python that comes first
    surroundings = {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(PACKAGE.parent)}
    command = [tools / "pyright", "--verifytypes", "tokenlight", "--ignoreexternal", "--outputjson"]
    run = subprocess.run(command, capture_output=True, text=True, env=os.environ | surroundings)
    found = json.loads(run.stdout)["typeCompleteness"]
    problems = [
        f"{symbol['name']}: {problem['message']}"
        for symbol in found["symbols"]
        for problem in symbol["diagnostics"]
        if not symbol["isTypeKnown"] and problem["severity"] == "error"
    ]
    if Path(found["packageRootDirectory"]) != PACKAGE:
        problems.append("pyright looked at another copy of the package")
    if not problems and found["completenessScore"] != 1:
        problems.append(f"the types of {found['completenessScore']:.2%} of the names are known")
    if found["exportedSymbolCounts"]["withKnownType"] <= 2000:
        problems.append("pyright hardly looked at anything")
    return problems


if __name__ == "__main__":
    if problems := find_problems():
        sys.exit("\n".join(problems))
    print("every public name has a known type")
