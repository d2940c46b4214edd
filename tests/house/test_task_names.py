"""Everything specific to a task is in its own file: no other file compares a task's name."""

import re

from tests.house.plan import PACKAGE
from tokenlight.tasks import TASKS

FILES = [p for p in sorted(PACKAGE.rglob("*")) if p.suffix in (".py", ".js", ".html") and p.parent.name != "tasks"]
NAMES = re.compile("|".join(map(re.escape, TASKS)))


def test_no_file_outside_of_tasks_contains_a_task_name():
    found = [
        f"{path.relative_to(PACKAGE)}:{number}: {line.strip()}"
        for path in FILES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if NAMES.search(line)
    ]
    assert not found, f"contains the name of a task; make it an attribute of the task (tokenlight/tasks): {found}"


def test_names_of_all_tasks_are_found():
    assert len(TASKS) >= 5
    assert all(NAMES.search(f'if task == "{name}":') for name in TASKS)
