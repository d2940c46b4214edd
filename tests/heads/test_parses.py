import json
import sys
import tracemalloc
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import pytest

from tokenlight.heads.parses import (
    Parse,
    conllu_parses,
    conllu_sentences,
    json_records,
    jsonl_parses,
    spacy_parses,
    spacy_words,
)
from tokenlight.text.tokenized_text import parts

GERMAN = """# newdoc id = d1
# sent_id = s-1
# text = Wir gehen ins Haus, don't we?
1\tWir\twir\tPRON\tPPER\t_\t2\tnsubj\t_\t_
2\tgehen\tgehen\tVERB\tVVFIN\t_\t0\troot\t_\t_
3-4\tins\t_\t_\t_\t_\t_\t_\t_\t_
3\tin\tin\tADP\tAPPR\t_\t5\tcase\t_\t_
4\tdas\tder\tDET\tART\t_\t5\tdet\t_\t_
5\tHaus\tHaus\tNOUN\tNN\t_\t2\tobl\t_\tSpaceAfter=No
5.1\tgehen\tgehen\tVERB\tVVFIN\t_\t_\t_\t2:conj\t_
6\t,\t,\tPUNCT\t$,\t_\t7\tpunct\t_\t_
7-8\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
7\tdo\tdo\tAUX\tVBP\t_\t2\tparataxis\t_\t_
8\tn't\tnot\tPART\tRB\t_\t7\tadvmod\t_\t_
9\twe\twe\tPRON\tPRP\t_\t7\tnsubj\t_\tSpaceAfter=No
10\t?\t?\tPUNCT\t.\t_\t2\tpunct\t_\t_
"""
UNTITLED = """1-2\tcannot\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No
1\tcan\tcan\tAUX\tMD\t_\t0\troot\t_\t_
2\tnot\tnot\tPART\tRB\t_\t1\tadvmod\t_\t_
3\t!\t!\tPUNCT\t.\t_\t1\tpunct\t_\t_
4\tgo\tgo\tVERB\tVB\t_\t1\txcomp\t_\t_
"""


def write(path: Path, content: str) -> Path:
    path.write_bytes(content.encode())
    return path


def forms(parse: Parse) -> list[str]:
    texts = parts(parse.text)
    return [texts[word.segment][slice(*word.span)] for word in parse.words]


def word(number: object, text: str, head: int = 0, deprel: str = "root") -> dict[str, object]:
    return {"id": number, "text": text, "lemma": text, "upos": "X", "head": head, "deprel": deprel}


def lines(path: Path, *records: object) -> Path:
    return write(path, "\n".join(json.dumps(record) for record in records))


def parse_json(tmp_path: Path, text: object, *parsed: object) -> Parse:
    return next(jsonl_parses(lines(tmp_path / "p.jsonl", {"sentence": text, "parsed": list(parsed)})))


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("end", ["", "\n", "\n\n\n# a comment on its own\n\n"])
def test_conllu_places_words_by_characters(tmp_path, newline, end):
    content = ("\ufeff" + GERMAN + "\n" + UNTITLED + end).replace("\n", newline)
    first, second = conllu_parses(write(tmp_path / "t.conllu", content))
    assert first.text == "Wir gehen ins Haus, don't we?"
    assert forms(first) == ["Wir", "gehen", "ins", "ins", "Haus", ",", "do", "n't", "we", "?"]
    assert [w.head for w in first.words] == [1, None, 4, 4, 1, 6, 1, 6, 6, 1]
    assert [w.relation for w in first.words][:3] == ["nsubj", "root", "case"]
    assert {w.segment for w in first.words} == {0}
    assert second.text == "cannot! go"
    assert forms(second) == ["can", "not", "!", "go"]


def test_conllu_columns_belong_to_the_words(tmp_path):
    (sentence,) = conllu_sentences(write(tmp_path / "t.conllu", GERMAN))
    assert [columns[1] for columns in sentence.columns][:4] == ["Wir", "gehen", "in", "das"]
    assert len(sentence.columns) == len(sentence.parse.words)
    assert sentence.name == "s-1"
    assert sentence.where.endswith("t.conllu, line 1 (sentence s-1)")


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("5\tHaus\tHaus", "5\tHaut\tHaus", 9, "expected the word 'Haut' here, found \"Haus, don"),
        ("we?\n", "we? Oh\n", 16, "the text goes on with 'Oh'"),
        ("\t2\tobl", "\t20\tobl", 9, "head 20"),
        ("\t2\tobl", "\t5\tobl", 9, "head 5"),
        ("\t2\tobl", "\t_\tobl", 9, "expected the number of a word, found '_'"),
        ("5\tHaus", "6\tHaus", 9, "expected word 5"),
        ("5\tHaus\t", "5 Haus ", 9, "expected 10 columns"),
    ],
)
def test_conllu_errors_name_file_line_and_sentence(tmp_path, old, new, line, message):
    assert old in GERMAN
    path = write(tmp_path / "bad.conllu", GERMAN.replace(old, new, 1))
    with pytest.raises(ValueError, match="s-1") as caught:
        list(conllu_parses(path))
    assert message in str(caught.value)
    assert f"bad.conllu, line {line} " in str(caught.value)


def test_conllu_without_a_sentence_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="found none"):
        list(conllu_parses(write(tmp_path / "empty.conllu", "# only this\n\n")))


def test_json_lines_of_the_release(tmp_path):
    parsed = [word(1, "uneasy", 2, "amod"), word(2, "mishmash", 0), word(3, "of", 4, "case"), word(4, "styles", 2)]
    parse = parse_json(tmp_path, "uneasy mishmash  of styles ", *parsed)
    assert forms(parse) == ["uneasy", "mishmash", "of", "styles"]
    assert [w.head for w in parse.words] == [1, None, 3, 1]
    assert parse.words[0].relation == "amod"


def test_json_numbers_restart_at_every_sentence(tmp_path):
    flat = [word(1, "Go", 0), word(2, ".", 1), word(1, "You", 2, "nsubj"), word(2, "stay", 0), word(1, "Hm", 0)]
    expected = [None, 0, 3, None, None]
    text = "Go. You stay Hm"
    assert [w.head for w in parse_json(tmp_path, text, *flat).words] == expected
    assert [w.head for w in parse_json(tmp_path, text, flat[:2], flat[2:4], flat[4:]).words] == expected


@pytest.mark.parametrize("key", ["sentence", "text", "comment"])
def test_json_array_and_every_text_key(tmp_path, key):
    records = [{"id": i, key: f"word{i} end", "parsed": [word(1, f"word{i}", 2), word(2, "end")]} for i in range(3000)]
    for content in (json.dumps(records), json.dumps(records, indent=1)):
        parses = list(jsonl_parses(write(tmp_path / "a.json", content)))
        assert [parse.text for parse in parses] == [record[key] for record in records]
    assert [w.head for w in parses[7].words] == [1, None]


def test_json_pairs_are_walked_in_input_order(tmp_path):
    parsed = [word(1, "A", 2), word(2, "man"), word(1, "man", 0), word(2, "eats", 1)]
    path = lines(tmp_path / "p.jsonl", {"premise": "A man ", "hypothesis": "man eats", "parsed": parsed})
    (parse,) = jsonl_parses(path, ("premise", "hypothesis"))
    assert parse.text == ("A man ", "man eats")
    assert [(w.segment, w.span) for w in parse.words] == [(0, (0, 1)), (0, (2, 5)), (1, (0, 3)), (1, (4, 8))]
    assert [w.head for w in parse.words] == [1, None, None, 2]


def test_json_a_parse_across_a_pair_is_an_error(tmp_path):
    parsed = [word(1, "A", 3), word(2, "man", 3), word(3, "eats")]
    path = lines(tmp_path / "p.jsonl", {"premise": "A man", "hypothesis": "eats", "parsed": parsed})
    with pytest.raises(ValueError, match="other text of the pair"):
        list(jsonl_parses(path, ("premise", "hypothesis")))


def test_json_multiword_entries_and_words_with_blanks(tmp_path):
    entries = [{"id": [1, 2], "text": "don't"}, word(1, "do", 3), word(2, "n't", 3), word(3, "pay"), word(4, "1 000")]
    parse = parse_json(tmp_path, "don't pay 1\u00a0 000", *entries)
    assert forms(parse) == ["do", "n't", "pay", "1\u00a0 000"]
    assert [w.head for w in parse.words] == [2, 2, None, None]


@pytest.mark.parametrize(
    ("text", "words", "placed"),
    [
        ("I don't.", ["I", "do", "n't", "."], ["I", "do", "n't", "."]),
        ("I won't go.", ["I", "will", "not", "go", "."], ["I", "won't", "won't", "go", "."]),
        ("I don't go", ["I", "do", "not", "go"], ["I", "do", "n't", "go"]),
        ("Il va au parc", ["Il", "va", "à", "le", "parc"], ["Il", "va", "au", "au", "parc"]),
        ("we gonna go", ["we", "going", "na", "go"], ["we", "gon", "na", "go"]),
        ("we gonna", ["we", "going", "to"], ["we", "gonna", "gonna"]),
        ("he'd've gone", ["he", "would", "'ve", "gone"], ["he", "'d", "'ve", "gone"]),
    ],
)
def test_json_expanded_words_cover_the_remaining_characters(tmp_path, text, words, placed):
    parse = parse_json(tmp_path, text, *(word(i, form) for i, form in enumerate(words, 1)))
    assert forms(parse) == placed


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        ("a fine movie", ["a", "good", "movie"], "'good' here, found 'fine movie'"),
        ("a fine, movie", ["a", "five", ",", "movie"], "'five' here, found 'fine, movie'"),
        ("a fines movie", ["a", "fine", "rotten", "movie"], "'rotten' here, found 's movie'"),
        ("a fine movie", ["a", "quaint", "old", "movie"], "'quaint' here, found 'fine movie'"),
        ("nnot.not", ["ne", "not", "not"], "'ne' here, found 'nnot.not'"),
        ("a fine movie", ["a", "fine", "movie", "!"], "'!' here, found the end of the text"),
        ("a fine movie", ["a", "fine"], "goes on with 'movie'"),
        ("a fine movie", ["a", "movie"], "'movie' here, found 'fine movie'"),
        ("A fine movie", ["a", "fine", "movie"], "'a' here, found 'A fine movie'"),
    ],
)
def test_json_another_text_is_an_error_that_shows_it(tmp_path, text, words, message):
    good = {"sentence": "ok", "parsed": [word(1, "ok")]}
    bad = {"sentence": text, "parsed": [word(i, form) for i, form in enumerate(words, 1)]}
    parses = jsonl_parses(lines(tmp_path / "p.jsonl", good, bad))
    assert forms(next(parses)) == ["ok"]
    with pytest.raises(ValueError, match=r"p\.jsonl, line 2") as caught:
        next(parses)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "empty file"),
        ("[] \n", ""),
        ('{"sentence": "a"', "line 1: not a JSON object"),
        ('[{"sentence": "a"', "record 1: the JSON array breaks off"),
        ("3", "expected an object with a text"),
        ('{"sentence": "a"}', "found the keys sentence"),
        ('{"body": "a", "parsed": []}', "one of the keys sentence, text, comment, found body, parsed: give text_key"),
        ('{"text": "a", "sentence": "b", "parsed": []}', "give text_key"),
        ('{"text": 3, "parsed": []}', "expected a text under 'text', found 3"),
        ('{"text": " ", "parsed": []}', "empty"),
        ('{"text": "a", "parsed": []}', "goes on with 'a'"),
        ('{"text": "a", "parsed": [{"id": [1, 2], "text": "a"}]}', "includes words up to 2"),
        ('{"text": "a", "parsed": [3]}', "expected a word with id"),
        ('{"text": "a", "parsed": [{"id": 1, "text": "a"}]}', "expected a head"),
        ('{"text": "a", "parsed": [{"id": true, "text": "a", "head": 0, "deprel": "root"}]}', "number of a word"),
        ('{"text": "a", "parsed": [{"id": 2, "text": "a", "head": 0, "deprel": "root"}]}', "expected word 1"),
        ('{"text": "a", "parsed": [{"id": 1, "text": "a", "head": 2, "deprel": "root"}]}', "head 2"),
    ],
)
def test_json_bad_files(tmp_path, content, message):
    path = write(tmp_path / "p.jsonl", content)
    if not message:
        assert list(jsonl_parses(path)) == []
        return
    with pytest.raises(ValueError, match=r"p\.jsonl") as caught:
        list(jsonl_parses(path))
    assert message in str(caught.value)


def test_files_are_read_one_sentence_at_a_time(tmp_path):
    many = 1_500  # a megabyte and a half, if all were kept
    conllu = write(tmp_path / "t.conllu", (UNTITLED + "\n") * many)
    record = {"sentence": "can go", "parsed": [word(1, "can"), word(2, "go", 1)]}
    array = write(tmp_path / "a.json", json.dumps([record] * many))
    for parses in (
        conllu_parses(conllu),
        jsonl_parses(lines(tmp_path / "l.jsonl", *[record] * many)),
        jsonl_parses(array),
    ):
        list(islice(parses, 10))
        tracemalloc.start()
        assert sum(1 for _ in parses) == many - 10
        assert tracemalloc.get_traced_memory()[1] < 800_000
        tracemalloc.stop()


def test_spacy_places_words_of_texts_and_pairs():
    pytest.importorskip("spacy")
    texts = [
        "The  big dog   doesn't bark.",
        ("Dogs bark.", " Cats  sleep. They eat\tfish "),
        "The  big dog   doesn't bark.",
    ]
    first, second, third = spacy_parses(iter(texts), batch_size=2)
    assert forms(first) == ["The", "big", "dog", "does", "n't", "bark", "."]
    assert [w.relation for w in first.words][:4] == ["det", "amod", "nsubj", "aux"]
    assert [w.head for w in first.words] == [2, 2, 5, 5, 5, None, 5]
    assert third == first
    assert forms(second) == ["Dogs", "bark", ".", "Cats", "sleep", ".", "They", "eat", "fish"]
    assert [w.segment for w in second.words] == [0] * 3 + [1] * 6
    assert [w.head for w in second.words] == [1, None, 1, 4, None, 4, 7, None, 7]


def test_spacy_is_lazy_and_checks_texts():
    pytest.importorskip("spacy")

    def endless():
        while True:
            yield "Dogs bark."

    assert len(list(islice(spacy_parses(endless(), batch_size=4), 3))) == 3
    with pytest.raises(ValueError, match="text 1: "):
        list(spacy_parses(["Dogs bark.", " "]))


def test_missing_spacy_or_pipeline_names_the_extra(monkeypatch):
    with pytest.raises(ImportError, match=r"tokenlight\[syntax\]"):
        spacy_parses(["a"], pipeline="no_such_pipeline")
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(ImportError, match=r"tokenlight\[syntax\]"):
        spacy_parses(["a"])


def test_json_a_written_form_that_is_not_in_the_text_is_an_error(tmp_path):
    entries = [{"id": [1, 2], "text": "don't"}, word(1, "do", 3), word(2, "n't", 3), word(3, "pay")]
    with pytest.raises(ValueError, match="expected the word \"don't\" here, found 'dont pay'"):
        parse_json(tmp_path, "dont pay", *entries)
    with pytest.raises(ValueError, match="expected the word \"don't\" here, found 'dont pay'"):
        parse_json(tmp_path, "Idont pay", [word(1, "I")], entries)


def test_json_an_expanded_word_may_end_the_first_text(tmp_path):
    parsed = [word(1, "I"), word(2, "do", 1), word(3, "not", 1), word(1, "Go")]
    path = lines(tmp_path / "p.jsonl", {"premise": "I don't", "hypothesis": "Go", "parsed": parsed})
    (parse,) = jsonl_parses(path, ("premise", "hypothesis"))
    assert forms(parse) == ["I", "do", "n't", "Go"]


def test_dependents_of_a_blank_get_its_head():
    tokens = [SimpleNamespace(i=i, idx=2 * i, text=text, is_space=text == " ") for i, text in enumerate("a b ")]
    for token, head in zip(tokens, (1, 2, 2, 3), strict=True):
        token.head, token.dep_ = tokens[head], "dep"
    assert [w.head for w in spacy_words(tokens, 0, 5)] == [6, None]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[{"a":1},{"a":2}]\n[{"a":3}]', r"expected nothing behind the end of the JSON array, found '\[\{\"a\":3\}\]'"),
        ("[1]\n \ngarbage", "expected nothing behind the end of the JSON array, found 'garbage'"),
        ("[]x", "expected nothing behind the end of the JSON array, found 'x'"),
        ('[{"a":1} {"a":2}]', "record 1: expected a comma or the end of the JSON array behind it"),
        ("[1,,2]", "record 2: expected a JSON value behind a comma, found ','"),
        ("[1,]", "record 2: expected a JSON value behind a comma, found ']'"),
        ("[,1]", "record 1: expected a JSON value"),
        ("[1", "record 1: expected a comma or the end of the JSON array behind it, found the end of the file"),
        ("[1,", "record 2: the JSON array breaks off"),
    ],
)
def test_text_after_a_json_array_is_refused(content, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        list(json_records(write(tmp_path / "p.json", content)))


@pytest.mark.parametrize("chunk", range(1, 9))
def test_items_of_a_json_array_may_span_several_reads(chunk, monkeypatch, tmp_path):
    monkeypatch.setattr("tokenlight.heads.parses.CHUNK", chunk)
    items = [12, 1.5, 3e-05, -7, {"a": [1, 22]}, "b c", None, 345]
    for content in (json.dumps(items), json.dumps(items, indent=3) + "\n \n"):
        assert [item for _, item in json_records(write(tmp_path / "p.json", content))] == items
    assert list(json_records(write(tmp_path / "p.json", " [ ] \n"))) == []


@pytest.mark.parametrize(("first", "last"), [(2, 1), (2, 2), (3, 1)])
def test_a_written_form_of_words_whose_last_is_not_behind_the_first_is_refused(first, last, tmp_path):
    message = f"expected the numbers of several words, the first before the last, found {first} to {last}"
    blank = "\t_" * 8
    words = f"1\ta{blank}\n{first}-{last}\tbc{blank}\n2\tb{blank}\n3\tc{blank}\n".replace(
        "_\t_\t_\t_\t_\t_", "_\t_\t_\t_\t0\troot"
    )
    with pytest.raises(ValueError, match=message):
        list(conllu_parses(write(tmp_path / "p.conllu", words)))
    with pytest.raises(ValueError, match=message):
        parse_json(tmp_path, "a bc", word(1, "a"), word([first, last], "bc"), word(2, "b"), word(3, "c"))
