"""A note is its text wherever text is expected, and keeps its code where it is copied."""

import copy
import json
import pickle

import pytest

from tokenlight.common.notes import Note, note_code

TRUNCATED = Note("truncated", "the text was too long")


def test_a_note_is_its_text():
    assert TRUNCATED == "the text was too long"
    assert json.dumps([TRUNCATED]) == '["the text was too long"]'
    assert f"note: {TRUNCATED}" == "note: the text was too long"
    assert list(dict.fromkeys([TRUNCATED, "the text was too long"])) == ["the text was too long"]


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy, lambda note: pickle.loads(pickle.dumps(note))])
def test_copies_of_a_note_keep_its_code(make):
    assert note_code(make(TRUNCATED)) == "truncated"
    assert make(TRUNCATED) == TRUNCATED


def test_text_read_from_a_file_has_no_code():
    assert note_code(json.loads(json.dumps(TRUNCATED))) == ""
