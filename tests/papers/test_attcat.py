"""The scripts of AttCAT."""

from tests.papers.conftest import RunScript


def test_table_1(run_script: RunScript):
    folder = run_script("attcat.table1", "--limit", 3)
    (comparison,) = folder.rglob("comparison.md")
    assert "| AttCAT |" in comparison.read_text()
