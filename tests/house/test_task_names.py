"""What is special about a task is in its own file: no other file asks which task it has."""

import re

from tests.house.plan import PACKAGE
from tokenlight.tasks import TASKS

FILES = [p for p in sorted(PACKAGE.rglob("*")) if p.suffix in (".py", ".js", ".html") and p.parent.name != "tasks"]
NAMES = re.compile("|".join(map(re.escape, TASKS)))


def test_no_file_outside_the_tasks_names_one():
    found = [
        f"{path.relative_to(PACKAGE)}:{number}: {line.strip()}"
        for path in FILES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if NAMES.search(line)
    ]
    assert not found, f"knows a task by its name; let the task say it (tokenlight/tasks): {found}"


def test_the_check_knows_all_tasks():
    assert len(TASKS) >= 5
    assert all(NAMES.search(f'if task == "{name}":') for name in TASKS)
