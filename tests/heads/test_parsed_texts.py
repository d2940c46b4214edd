"""Which parser reads a file."""

import pytest

from tokenlight.heads.parsed_texts import parse_source


@pytest.mark.parametrize("name", ["trees.conllu", "trees.CONLLU"])
def test_treebanks_hold_their_parses_whatever_the_case_of_their_names(name, tmp_path):
    path = tmp_path / name
    path.write_text("# text = It is.\n1\tIt\tit\tPRON\t_\t_\t2\tnsubj\t_\t_\n2\tis\tbe\tVERB\t_\t_\t0\troot\t_\t_\n\n")
    assert parse_source(path).parser == "conllu"
