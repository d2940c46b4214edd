"""What is special about a task is in its own file: no other file asks which task it has."""

import re
from pathlib import Path

import pytest

from tests.house.plan import PACKAGE
from tokenlight.tasks import TASKS

FILES = [p for p in sorted(PACKAGE.rglob("*")) if p.suffix in (".py", ".js", ".html") and p.parent.name != "tasks"]
NAMES = re.compile("|".join(map(re.escape, TASKS)))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_no_file_outside_the_tasks_names_one(path: Path):
    lines = path.read_text(encoding="utf-8").splitlines()
    found = [f"{number}: {line.strip()}" for number, line in enumerate(lines, 1) if NAMES.search(line)]
    assert not found, f"{path.name} knows a task by its name; let the task say it (tokenlight/tasks): {found}"


def test_the_check_knows_all_tasks():
    assert len(TASKS) >= 5
    assert all(NAMES.search(f'if task == "{name}":') for name in TASKS)
