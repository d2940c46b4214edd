"""The papers' pages are what is written from the facts and the stored numbers."""

import pytest

from papers.page import DOCS, FOLDERS, find_paper, write_page


@pytest.mark.parametrize("folder", FOLDERS)
def test_pages_are_up_to_date(folder: str):
    """If this fails, run `python -m papers.page`."""
    assert (DOCS / f"{folder}.md").read_text(encoding="utf-8") == write_page(find_paper(folder))
