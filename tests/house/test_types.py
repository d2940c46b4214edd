"""Whoever uses the package from typed code is told what everything takes and gives."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.house.plan import PACKAGE


def test_every_public_name_has_a_known_type():
    """pyright looks at all that can be imported; this takes as long as the rest of the house's tests together."""
    tools = Path(sys.executable).parent  # pyright finds torch through the Python that comes first
    surroundings = {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(PACKAGE.parent)}
    command = [tools / "pyright", "--verifytypes", "tokenlight", "--ignoreexternal", "--outputjson"]
    run = subprocess.run(command, capture_output=True, text=True, env=os.environ | surroundings)
    found = json.loads(run.stdout)["typeCompleteness"]
    assert Path(found["packageRootDirectory"]) == PACKAGE, "pyright looked at another copy of the package"
    incomplete = [
        f"{symbol['name']}: {problem['message']}"
        for symbol in found["symbols"]
        for problem in symbol["diagnostics"]
        if not symbol["isTypeKnown"] and problem["severity"] == "error"
    ]
    assert not incomplete, "\n".join(incomplete)
    assert found["completenessScore"] == 1
    assert found["exportedSymbolCounts"]["withKnownType"] > 2000  # it did look
